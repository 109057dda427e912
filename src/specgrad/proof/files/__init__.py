"""The files of a certificate: strict reading, writing and checking."""
