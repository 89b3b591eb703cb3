"""Methods that no release needs: theory, pMSE, statistics of records. Only the public interface and the command
`topdown statistic` import them.
"""
