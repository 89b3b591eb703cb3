"""How well synthetic records mimic confidential ones (pMSE), and a mechanism that samples by it."""
