(* Networks cell by cell, and what an execution of one is: the class *fused*, with the roundings R of every sum
   stated.

   This is the statement that everything about the checker rests on, and it has no proofs: whoever reads one file of
   the checker should read this one. A network is a list of cells: inputs, sums of products (a region of linear
   nodes, multiplied out), relus, maxima, and functions that are straight between kinks. A sum has the value of any
   formula whose addends are its products, with no more than R roundings on the way; its readers may see one value of
   it or several, as the cell says. `execution` is a choice of such values; `overflows` says that some number that is
   rounded is above the largest float32. Check.v proves `check_sound` of these; CheckExact.v that there are any;
   CheckRegion.v that the trees of RoundingRegion.v are among them. *)
From Coq Require Import Reals ZArith List Permutation Lra.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckBend.
Import ListNotations.
Open Scope R_scope.

(* A cell is an input, a sum of products (a region of linear nodes, multiplied out), a relu or a maximum of other cells,
   or a function of one cell that is straight between kinks.
   source     None: the weight is an additive constant
   blur       coefficients of the network are within this of the weights: 0, or more where they are no number m * 2^e
              (a mean of 9)
   shared     all copies of the cell read one value here: the product belongs to a convolution or a matrix product,
              which is computed once. Otherwise every copy may read another
   roundings  R: no addend meets more roundings
   spread     no addend's constants, each made at least 1, have a product above spread * max(1, abs weight)
   once       the sum itself is computed once: all its readers see one value *)
Record term := Term { weight : number; source : option key; shared : bool }.
Record sums := Sums { terms : list term; blur : number; roundings : Z; spread : number; once : bool }.
Inductive cell := Input (low high : number) | Sum (s : sums) | Relu (x : key) | Max (x : key) (xs : list key)
  | Bend (x : key) (f : bent).
Definition network := list (key * cell).
Definition sources (x : cell) : list key :=
  match x with
  | Input _ _ => []
  | Sum s => flat_map (fun p => match source p with None => [] | Some j => [j] end) (terms s)
  | Relu j | Bend j _ => [j]
  | Max j js => j :: js
  end.

Definition maximum (v : R) (vs : list R) : R := fold_left Rmax vs v.

Section Execution.
Variables (net : network) (unit : R).              (* unit: 2^-24 to nearest, 2^-23 for any rounding *)
Variable stored : key -> R.                        (* inputs, and sums that are computed once *)
Variable fetched : key -> nat -> R.                (* what a sum read at its n-th product, where that is shared *)

(* The addends of a formula are the products of the cell, whichever values of its sources they read. *)
Definition matches (s : sums) (read : R) (p : term) (m : addend) : Prop :=
  Rabs (coef m - real (weight p)) <= real (blur s) /\ wide m <= real (spread s) * Rmax 1 (Rabs (real (weight p))) /\
  match source p with
  | None => vars m = []
  | Some j => exists v, vars m = [(j, v)] /\ (shared p = true -> v = read)
  end.
Fixpoint all_match (s : sums) (read : nat -> R) (n : nat) (ps : list term) (ms : list addend) : Prop :=
  match ps, ms with
  | [], [] => True
  | p :: ps, m :: ms => matches s (read n) p m /\ all_match s read (S n) ps ms
  | _, _ => False
  end.
Definition losses_allowed (s : sums) : nat := Z.to_nat (4 * roundings s + 4).
Definition formula_of (k : key) (s : sums) (t : formula) : Prop :=
  units_ok t /\ unit_product t <= (1 + unit) ^ Z.to_nat (roundings s) /\
    loss_product t <= (1 + least_normal) ^ losses_allowed s /\
  exists ms, Permutation (addends t) ms /\ all_match s (fetched k) 0 (terms s) ms.

(* v is one of the values that cell k may have, as some reader sees it. *)
Inductive possible : key -> R -> Prop :=
  | possible_input k low high : In (k, Input low high) net -> possible k (stored k)
  | possible_once k s : In (k, Sum s) net -> once s = true -> possible k (stored k)
  | possible_sum k s t v m : In (k, Sum s) net -> once s = false -> formula_of k s t ->
      (forall j w, In (j, w) (cells_read t) -> possible j w) -> evals t v m -> possible k v
  | possible_relu k j v e : In (k, Relu j) net -> possible j v -> Rabs e <= least_normal -> possible k (Rmax 0 v + e)
  | possible_max k j js v vs e : In (k, Max j js) net -> possible j v -> Forall2 possible js vs ->
    Rabs e <= least_normal ->
      possible k (maximum v vs + e)
  | possible_bend k j f v e : In (k, Bend j f) net -> possible j v ->
    Rabs e <= real (relative f) * Rabs v + real (absolute f) ->
      possible k (bent_at f v + e).

Definition computes (k : key) (s : sums) (v m : R) : Prop :=
  exists t, formula_of k s t /\ (forall j w, In (j, w) (cells_read t) -> possible j w) /\ evals t v m.

Definition execution : Prop :=
  (forall k low high, In (k, Input low high) net -> real low <= stored k <= real high) /\
  (forall k s, In (k, Sum s) net -> once s = true -> exists m, computes k s (stored k) m) /\
  (forall k s n p j, In (k, Sum s) net -> nth_error (terms s) n = Some p -> shared p = true -> source p = Some j ->
     possible j (fetched k n)).

(* Otherwise no number that any cell rounds exceeds the largest float32 number: so nothing overflows, and rounding with
   unbounded exponents, as above, is rounding to float32. *)
Definition overflows (most : R) : Prop :=
  (exists k s v m, In (k, Sum s) net /\ computes k s v m /\ most < m) \/
    (exists k j f v, In (k, Bend j f) net /\ possible k v /\ most < Rabs v).
End Execution.
