(* The checker of certificates as an OCaml program; see ToZarith.v for what is trusted. *)
From Coq Require Import ZArith Extraction ExtrOcamlBasic.
From Specgrad Require Import ToZarith CheckNumber CheckTrie CheckBend CheckExecution CheckBackward CheckPieces CheckLayers CheckForward Check.

(* A negative distance shifts the other way, as in Coq; right shifts round down in both. *)
Extract Constant Z.shiftl => "(fun x n -> let n = Big.to_int n in if n >= 0 then Big.shift_left x n else Big.shift_right x (- n))".
Extract Constant Z.shiftr => "(fun x n -> let n = Big.to_int n in if n >= 0 then Big.shift_right x n else Big.shift_left x (- n))".

Extraction "extracted.ml" check.
