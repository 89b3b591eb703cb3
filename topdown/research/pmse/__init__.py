"""The similarity of synthetic and confidential records (pMSE), and a mechanism that samples by it."""
