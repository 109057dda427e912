"""For engineers who must sign: the ONNX safety profile, accuracy sheets, test vectors, evidence.

`profile/` checks a file against the profile's texts and normalises it, `accuracy/` writes bounds per operator and
per node, `vectors/` writes cases with exact answers, `evidence/` gathers what is known of a model and its target.
"""
