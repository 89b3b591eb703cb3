"""From a release to records: microdata, how well records mimic others (pMSE), and a mechanism that samples by it.

from topdown.synthesis.microdata import synthesize, write_microdata, tabulate
from topdown.synthesis.pmse import pmse
from topdown.synthesis.mechanism import PMSEMechanism, ExpectedPMSE
"""

from __future__ import annotations
