(* The checker of certificates as an OCaml program; see ToZarith.v for what is trusted. *)
From Coq Require Import ZArith Extraction ExtrOcamlBasic.
From Specgrad Require Window Readers.
From Specgrad Require Import ToZarith CheckNumber CheckTrie CheckBend CheckExecution CheckBackward CheckPieces CheckLayers CheckForward Check Compile CompileCount CompileCheck.

(* A negative distance shifts the other way, as in Coq; right shifts round down in both. *)
Extract Constant Z.shiftl => "(fun x n -> let n = Big.to_int n in if n >= 0 then Big.shift_left x n else Big.shift_right x (- n))".
Extract Constant Z.shiftr => "(fun x n -> let n = Big.to_int n in if n >= 0 then Big.shift_right x n else Big.shift_left x (- n))".
Extract Constant Z.log2 => "(fun n -> if Big.sign n <= 0 then Big.zero else Big.of_int (Big.numbits n - 1))".
(* 0, 1, ... n - 1, without counting in unary. *)
Extract Constant Window.range => "(fun n -> List.init (max 0 (Big.to_int n)) Big.of_int)".

Extraction "extracted.ml" check check_graph manners_of compile Readers.ravel.
