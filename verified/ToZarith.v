(** Extraction to OCaml with Zarith: Z and positive become Zarith's integers.
    Trusted, together with extraction itself, OCaml and Zarith. Import it in a program's extract.v. *)
From Coq Require Import ZArith Extraction ExtrOcamlBasic.

Extract Inductive positive => "Big.t" ["Big.doubled_succ" "Big.doubled" "Big.one"] "Big.positive_case".
Extract Inductive Z => "Big.t" ["Big.zero" "" "Big.neg"] "Big.z_case".

Extract Constant Pos.succ => "Big.succ".
Extract Constant Pos.add => "Big.add".
Extract Constant Pos.mul => "Big.mul".
Extract Constant Pos.eqb => "Big.equal".
Extract Constant Pos.compare => "Big.compare_case Eq Lt Gt".
Extract Constant Z.succ => "Big.succ".
Extract Constant Z.pred => "Big.pred".
Extract Constant Z.add => "Big.add".
Extract Constant Z.sub => "Big.sub".
Extract Constant Z.mul => "Big.mul".
Extract Constant Z.opp => "Big.neg".
Extract Constant Z.abs => "Big.abs".
Extract Constant Z.min => "Big.min".
Extract Constant Z.max => "Big.max".
Extract Constant Z.eqb => "Big.equal".
Extract Constant Z.leb => "Big.leq".
Extract Constant Z.ltb => "Big.lt".
Extract Constant Z.compare => "Big.compare_case Eq Lt Gt".
Extract Constant Z.div => "Big.div_floor".
Extract Constant Z.modulo => "Big.mod_floor".
