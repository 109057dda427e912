(* From a graph of operators, described by attributes and weights, to the cells that the checker reads.

   A linear node between two others has no cells: each of its values is a formal sum of cells. Where a value is read by
   a node that is not linear, or is asked for, its sum is multiplied out and becomes a cell. What the operators mean
   stands in Conv.v, AvgPool.v and MaxPool.v; `compiled_values` says that the cells' exact values are theirs, position
   by position. *)
From Coq Require Import Reals ZArith List Lia Lra Bool.
From Flocq Require Import Core.
From Specgrad Require Import CheckNumber CheckTrie CheckBend CheckExecution CheckSums CheckExact.
From Specgrad Require Numbers Relation Window Readers Conv AvgPool MaxPool.
Import ListNotations.
Open Scope R_scope.

Definition positions := Window.positions.
Definition array A := list Z -> A.

(* --- formal sums --- *)
(* Marked: what is below is a sum that is computed once (true), or again by each reader. *)
Inductive form := Fixed (c : number) | At (k : key) | Plus (f g : form) | Scaled (c : number) (f : form)
  | Marked (shared : bool) (f : form).
Fixpoint amount (g : key -> R) (f : form) : R :=
  match f with
  | Fixed c => real c
  | At k => g k
  | Plus a b => amount g a + amount g b
  | Scaled c a => real c * amount g a
  | Marked _ a => amount g a
  end.
(* The least e >= 0 with abs c <= 2^e; the maximum e with 2^e <= abs c, or 0 where that is negative. *)
Definition bits_above (c : number) : Z := if Z.eqb (mantissa c) 0 then 0
  else Z.max 0 (Z.log2_up (Z.abs (mantissa c)) + exponent c).
Definition bits_below (c : number) : Z := if Z.eqb (mantissa c) 0 then 0
  else Z.max 0 (Z.log2 (Z.abs (mantissa c)) + exponent c).
(* The products of w times a formal sum, each with the bits that its factors may take. A constant 0 is none: to add it
   rounds nothing. *)
Fixpoint multiplied (w : number) (wide : Z) (mark : option bool) (f : form) (rest : list (term * Z)) :
  list (term * Z) :=
  match f with
  | Fixed c => if Z.eqb (mantissa c) 0 then rest else (Term (mul w c) None false, (wide + bits_above c)%Z) :: rest
  | At k => (Term w (Some k) (match mark with Some b => b | None => false end), wide) :: rest
  | Plus a b => multiplied w wide mark a (multiplied w wide mark b rest)
  | Scaled c a => multiplied (mul w c) (wide + bits_above c)%Z mark a rest
  | Marked b a => multiplied w wide (match mark with None => Some b | some => some end) a rest
  end.
Definition spread_of (ps : list (term * Z)) : Z :=
  fold_left (fun m p => Z.max m (snd p - bits_below (weight (fst p)))) ps 0%Z.
Lemma multiplied_line g f : forall w wide mark rest,
  line g (map fst (multiplied w wide mark f rest)) = real w * amount g f + line g (map fst rest).
Proof.
  induction f as [c|k|a IHa b IHb|c a IHa|s a IHa]; intros w wide mark rest; simpl.
  - destruct (Z.eqb_spec (mantissa c) 0) as [Z|_]; simpl; [unfold real at 2; rewrite Z; ring | rewrite real_mul; ring].
  - ring.
  - rewrite IHa, IHb. ring.
  - rewrite IHa, real_mul. ring.
  - apply IHa.
Qed.

(* Of a sum of nothing: 0. *)
Definition products_of (f : form) : list (term * Z) :=
  match multiplied one 0 None f [] with [] => [(Term zero None false, 0%Z)] | ps => ps end.
Lemma products_line g f : line g (map fst (products_of f)) = amount g f.
Proof.
  pose proof (multiplied_line g f one 0 None []) as H. rewrite real_one in H. unfold products_of.
  destruct (multiplied one 0 None f []) as [|p ps]; [simpl in *; rewrite real_zero; lra | rewrite H; simpl; ring].
Qed.

(* --- graphs --- *)
(* Where a cell of a layout comes from: from node x at p, or it is a number. *)
Inductive origin := Cell (x : nat) (p : list Z) | Filled (c : number).
(* As NumPy has them: axes of Permute are those of the argument, in the order of the result's. *)
Inductive layout :=
  | Reshaped (x : nat) | Permuted (axes : list nat) (x : nat) | Sliced (starts steps : list Z) (x : nat)
  | Padded (lows : list Z) (c : number) (x : nat) | Repeated (x : nat) | Joined (axis : nat) (xs : list nat).
Fixpoint unravel (shape : list Z) (k : Z) : list Z :=
  match shape with [] => [] | _ :: rest => let m := fold_right Z.mul 1%Z rest in (k / m)%Z :: unravel rest (k mod m)%Z
    end.
Definition inside (shape p : list Z) : bool :=
  Nat.eqb (length p) (length shape) && forallb (fun ip => Window.within 0 (snd ip) (fst ip)) (combine p shape).
Fixpoint place_of (a : nat) (axes : list nat) : nat := match axes with [] => O | b :: axes => if Nat.eqb a b then O
  else S (place_of a axes) end.
Fixpoint joined (extent : nat -> list Z) (axis : nat) (xs : list nat) (p : list Z) (at_axis : Z) : origin :=
  match xs with
  | [] => Filled zero
  | x :: xs => let n := nth axis (extent x) 0%Z in
      if Z.ltb at_axis n || match xs with [] => true | _ => false end
        then Cell x (firstn axis p ++ at_axis :: skipn (S axis) p)
      else joined extent axis xs p (at_axis - n)%Z
  end.
Definition origin_of (extent : nat -> list Z) (shape : list Z) (l : layout) (p : list Z) : origin :=
  match l with
  | Reshaped x => Cell x (unravel (extent x) (Readers.ravel shape p))
  | Permuted axes x => Cell x (map (fun a => nth (place_of a axes) p 0%Z) (seq 0 (length axes)))
  | Sliced starts steps x => Cell x (map (fun abi => (fst (fst abi) + snd (fst abi) * snd abi)%Z)
    (combine (combine starts steps) p))
  | Padded lows c x => let q := map (fun ab => (fst ab - snd ab)%Z) (combine p lows) in if inside (extent x) q
    then Cell x q else Filled c
  | Repeated x => Cell x (map (fun ni => if Z.eqb (fst ni) 1 then 0%Z else snd ni)
      (combine (extent x) (skipn (length shape - length (extent x)) p)))
  | Joined axis xs => joined extent axis xs p (nth axis p 0%Z)
  end.
(* Contracted: the sum over positions s of `letters` of weights times x, which read at_w and at_x of the numbers o ++ s.
   Nodes are read by their number. *)
Inductive operator :=
  | Given (low high : array number)
  | Conv (batch groups cin cout : Z) (w : list Window.axis) (weights : array number) (bias : option (array number))
    (x : nat)
  | Transposed (batch groups cin cout : Z) (w : list Window.axis) (weights : array number)
    (bias : option (array number)) (x : nat)
  | Average (w : list Window.axis) (d : AvgPool.divisor number) (x : nat)
  | Greatest (w : list Window.axis) (x : nat)
  | Positive (x : nat)
  | Bent (f : bent) (x : nat)
  | Added (x y : nat)
  | Subtracted (x y : nat)
  | Times (c : array number) (x : nat)
  | Shifted (c : array number) (x : nat)
  | Negated (x : nat)
  | Contracted (letters : list Z) (at_x at_w : list nat) (weights : array number) (x : nat)
  | Layout (l : layout).
Definition pick (which : list nat) (p : list Z) : list Z := map (fun n => nth n p 0%Z) which.

Definition real_divisor (d : AvgPool.divisor number) : AvgPool.divisor R :=
  match d with AvgPool.Padded => AvgPool.Padded | AvgPool.Inside => AvgPool.Inside | AvgPool.By v => AvgPool.By (real v)
    end.
Definition less_real (a b : R) : bool := if Rlt_dec a b then true else false.
(* What the operator gives, from its operands' values. *)
Definition given (at_input : nat -> array R) (extent : nat -> list Z) (i : nat) (shape : list Z) (op : operator)
  (env : nat -> array R) : array R :=
  let r (c : array number) p := real (c p) in
  let b (c : option (array number)) p := match c with Some c => real (c p) | None => 0 end in
  match op with
  | Given _ _ => at_input i
  | Conv n g ci co w weights bias x => Conv.conv Numbers.reals n g ci co w (r weights) (b bias) (env x)
  | Transposed n g ci co w weights bias x => Conv.conv_transpose Numbers.reals n g ci co w (r weights) (b bias) (env x)
  | Average w d x => AvgPool.avg_pool Numbers.reals (AvgPool.share Numbers.reals (real_divisor d) w) w (env x)
  | Greatest w x => MaxPool.max_pool Numbers.reals less_real w (env x)
  | Positive x => fun p => Rmax 0 (env x p)
  | Bent f x => fun p => bent_at f (env x p)
  | Added x y => fun p => env x p + env y p
  | Subtracted x y => fun p => env x p - env y p
  | Times c x => fun p => r c p * env x p
  | Shifted c x => fun p => env x p + r c p
  | Negated x => fun p => - env x p
  | Contracted letters at_x at_w weights x => fun o =>
      Numbers.sum Numbers.reals (positions letters)
        (fun s => r weights (pick at_w (o ++ s)) * env x (pick at_x (o ++ s)))
  | Layout l => fun p => match origin_of extent shape l p with Cell x q => env x q | Filled c => real c end
  end.

(* --- the compiler's formal sums of linear operators --- *)
Definition zero_form := Fixed zero.
Definition with_bias (bias : option (array number)) (c : list Z) (f : form) : form :=
  match bias with Some b => Plus f (Fixed (b c)) | None => f end.
(* 1 / c, if that is m * 2^e. *)
Definition reciprocal (c : number) : option number :=
  let k := Z.log2 (Z.abs (mantissa c)) in
  if Z.eqb (Z.abs (mantissa c)) (2 ^ k) then Some (Number (Z.sgn (mantissa c)) (- (k + exponent c))) else None.
Definition part_of (d : AvgPool.divisor number) (w : list Window.axis) (o : list Z) : option number :=
  let share n := match n with O => Some zero | _ => reciprocal (of_Z (Z.of_nat n)) end in
  match d with
  | AvgPool.Padded => share (AvgPool.count AvgPool.counted w o)
  | AvgPool.Inside => share (AvgPool.count AvgPool.inside w o)
  | AvgPool.By c => reciprocal c
  end.
Definition gathered (w : list Window.axis) (weight : list Z -> list Z -> number) (x : array form) (o : list Z) : form :=
  fold_right (fun t f => match Window.reads_all w o t with Some i => Plus (Scaled (weight o t) (x i)) f | None => f end)
    zero_form (Window.taps w).
Fixpoint scattered (w : list Window.axis) (i : list Z) (f : list Z -> list Z -> form) : form :=
  match w, i with
  | [], [] => f [] []
  | a :: w, i :: is =>
      fold_right (fun o s => fold_right (fun t s =>
        match Window.reads a o t with
        | Some j => if Z.eqb j i then Plus (scattered w is (fun os ts => f (o :: os) (t :: ts))) s else s
        | None => s
        end) s (Window.range (Window.kernel a))) zero_form (Window.range (Window.out a))
  | _, _ => zero_form
  end.
Definition summed (extent : nat -> list Z) (shape : list Z) (op : operator) (env : nat -> array form) :
  option (array form) :=
  match op with
  | Conv b g ci co w weights bias x => Some (fun o => with_bias bias (Conv.channel o)
      (gathered (Conv.conv_window b g ci co w) (fun o t => weights (Conv.weight_at o t)) (env x) o))
  | Transposed b g ci co w weights bias x => Some (fun i => with_bias bias (Conv.channel i)
      (scattered (Conv.conv_window b g ci co w) i (fun o t => Scaled (weights (Conv.weight_at o t)) (env x o))))
  | Average w d x => Some (fun o => gathered w (fun o _ => match part_of d w o with Some c => c | None => zero end)
    (env x) o)
  | Added x y => Some (fun p => Plus (env x p) (env y p))
  | Subtracted x y => Some (fun p => Plus (env x p) (Scaled (neg one) (env y p)))
  | Times c x => Some (fun p => Scaled (c p) (env x p))
  | Shifted c x => Some (fun p => Plus (env x p) (Fixed (c p)))
  | Negated x => Some (fun p => Scaled (neg one) (env x p))
  | Contracted letters at_x at_w weights x => Some (fun o =>
      fold_right (fun s f => Plus (Scaled (weights (pick at_w (o ++ s))) (env x (pick at_x (o ++ s)))) f) zero_form
        (positions letters))
  | Layout l => Some (fun p => match origin_of extent shape l p with Cell x q => env x q | Filled c => Fixed c end)
  | Given _ _ | Greatest _ _ | Positive _ | Bent _ _ => None
  end.

Lemma reciprocal_real c r : reciprocal c = Some r -> real r = / real c.
Proof.
  unfold reciprocal. set (k := Z.log2 (Z.abs (mantissa c))). destruct (Z.eqb_spec (Z.abs (mantissa c)) (2 ^ k)) as [E|];
    [|discriminate].
  intros [= <-]. assert (K : (0 <= k)%Z) by apply Z.log2_nonneg. unfold real; cbn [mantissa exponent].
  assert (M : mantissa c = (Z.sgn (mantissa c) * 2 ^ k)%Z) by
    (rewrite <- E; symmetry; apply Z.sgn_abs || (rewrite Z.mul_comm; apply Z.abs_sgn)).
  rewrite M at 2. rewrite mult_IZR. rewrite (IZR_Zpower radix2) by exact K. rewrite Rmult_assoc, <- bpow_plus, bpow_opp.
  pose proof (power_pos (k + exponent c)). assert (N : mantissa c <> 0%Z) by (pose proof (Z.pow_pos_nonneg 2 k); lia).
  destruct (Z.sgn_spec (mantissa c)) as [[_ ->]|[[Z0 _]|[_ ->]]]; [|lia|].
  - field; lra.
  - change (IZR (- (1))) with (-1). field; lra.
Qed.
Lemma number_INR n : Numbers.number Numbers.reals n = INR n.
Proof. unfold Numbers.number, Numbers.sum. induction n; [reflexivity|]. rewrite S_INR. cbn [repeat fold_right].
rewrite IHn. simpl. ring. Qed.
Lemma part_share d w o c : part_of d w o = Some c -> real c = AvgPool.share Numbers.reals (real_divisor d) w o.
Proof.
  assert (S : forall n c, match n with O => Some zero | _ => reciprocal (of_Z (Z.of_nat n)) end = Some c ->
    real c = AvgPool.share_of Numbers.reals n).
  { intros [|n] r; cbv beta iota; [intros [= <-]; apply real_zero|]. intros H. apply reciprocal_real in H. rewrite H,
      real_of_Z, <- INR_IZR_INZ.
    unfold AvgPool.share_of. rewrite number_INR. change (/ INR (S n) = 1 / INR (S n)). unfold Rdiv. ring. }
  destruct d as [| |v]; cbn [part_of real_divisor AvgPool.share]; try apply S.
  intros H. apply reciprocal_real in H. rewrite H. change (/ real v = 1 / real v). unfold Rdiv. ring.
Qed.

Section Sums.
Variable g : key -> R.
Lemma with_bias_amount bias c f : amount g (with_bias bias c f) = match bias with Some b => real (b c) | None => 0
  end + amount g f.
Proof. destruct bias; cbn [with_bias amount]; ring. Qed.
Lemma gathered_amount w weight x o : amount g (gathered w weight x o) =
  Readers.gather_along Numbers.reals w (fun o t => real (weight o t)) (fun i => amount g (x i)) o.
Proof.
  unfold gathered, Readers.gather_along, Relation.gather. induction (Window.taps w) as [|t ts IH];
    cbn [fold_right Numbers.sum].
  - apply real_zero.
  - unfold Numbers.sum in *. simpl. destruct (Window.reads_all w o t) as [i|]; simpl; rewrite IH; simpl; ring.
Qed.
Lemma scattered_amount w : forall i f, amount g (scattered w i f) =
  Readers.readers Numbers.reals w i (fun o t => amount g (f o t)).
Proof.
  induction w as [|a w IH]; intros [|i is] f; cbn [scattered Readers.readers]; auto using real_zero.
  unfold Numbers.sum. induction (Window.range (Window.out a)) as [|o os IHo]; [apply real_zero|]. cbn [fold_right].
  rewrite <- IHo.
  set (s := fold_right _ zero_form os). clearbody s. clear IHo.
  induction (Window.range (Window.kernel a)) as [|t ts IHt]; cbn [fold_right]; [simpl; ring|].
  destruct (Window.reads a o t) as [j|]; [destruct (Z.eqb j i)|]; cbn [amount]; rewrite IHt, ?IH; simpl; ring.
Qed.
End Sums.

(* --- tables: a value per position of a shape, computed once --- *)
Fixpoint digits (n : BinNums.positive) : key := match n with xH => Here | xO n => Even (digits n)
  | xI n => Odd (digits n) end.
Definition slot (shape p : list Z) : key := digits (Z.to_pos (Readers.ravel shape p + 1)).
Definition table {A} (shape : list Z) (f : array A) : trie A :=
  fold_left (fun t p => put (slot shape p) (Some (f p)) t) (positions shape) Empty.
Definition tabled {A} (shape : list Z) (f : array A) : array (option A) := let t :=
  table shape f in fun p => get (slot shape p) t.

Lemma digits_same n : forall m, digits n = digits m -> n = m.
Proof. induction n; intros [m|m|]; simpl; try discriminate; auto; intros [= H]; f_equal; auto. Qed.
Lemma ravel_nonneg shape p : In p (positions shape) -> (0 <= Readers.ravel shape p)%Z.
Proof.
  unfold positions. rewrite Window.in_positions. induction 1 as [|i n p rest [I1 I2] H IH]; simpl; [lia|].
  assert (0 <= fold_right Z.mul 1 rest)%Z by (clear IH; induction H; simpl; nia). nia.
Qed.
Lemma slot_same shape p q : In p (positions shape) -> In q (positions shape) -> slot shape p = slot shape q -> p = q.
Proof.
  intros P Q E. apply digits_same in E. pose proof (ravel_nonneg _ _ P). pose proof (ravel_nonneg _ _ Q).
  assert (R : Readers.ravel shape p = Readers.ravel shape q) by lia.
  apply Readers.row_major in P. apply Readers.row_major in Q. rewrite R in P. congruence.
Qed.
Lemma tabled_at {A} shape (f : array A) p : In p (positions shape) -> tabled shape f p = Some (f p).
Proof.
  intros P. unfold tabled, table.
  assert (G : forall l t, incl l (positions shape) -> In p l \/ get (slot shape p) t = Some (f p) ->
    get (slot shape p) (fold_left (fun t p => put (slot shape p) (Some (f p)) t) l t) = Some (f p)).
  { induction l as [|q l IH]; intros t L H; simpl; [destruct H as [[]|H]; exact H|].
    assert (L' : incl l (positions shape)) by (intros a Ha; apply L; now right). apply IH; [exact L'|].
    destruct (key_dec (slot shape q) (slot shape p)) as [E|D].
    - apply slot_same in E; [|apply L; now left | exact P]. subst q. right. now rewrite get_put_same.
    - destruct H as [[->|H]|H]; [elim D; reflexivity | now left | right; now rewrite get_put_other]. }
  apply G; [apply incl_refl | now left].
Qed.

(* --- the compiler --- *)
(* How the sums of a node may be computed: `mark` as in Marked, the rest as in CheckExecution.sums. *)
Record manner := Manner { mark : option bool; rounds : Z; single : bool }.
(* celled: a linear node whose values become cells, as others than linear nodes read them *)
Record node := Node { extents : list Z; what : operator; celled : bool }.
(* What a node gives: its formal sums, and the cells that have its values, where some do. *)
Record entry := Entry { extent : list Z; sum_at : array (option form); cell_at : array (option key) }.
Definition no_entry := Entry [] (fun _ => Some zero_form) (fun _ => None).

Definition same_shape (a b : list Z) : bool := Readers.same a b.
Definition fits (env : nat -> entry) (n : node) : bool :=
  let s x := extent (env x) in let same := same_shape in
  match what n with
  | Given _ _ => true
  | Conv b g ci co w _ _ x => let w := Conv.conv_window b g ci co w in same (s x) (map Window.size w) &&
    same (extents n) (map Window.out w)
  | Transposed b g ci co w _ _ x => let w := Conv.conv_window b g ci co w in same (s x) (map Window.out w) &&
    same (extents n) (map Window.size w)
  | Average w d x => same (s x) (map Window.size w) && same (extents n) (map Window.out w) &&
      forallb (fun o => match part_of d w o with Some _ => true | None => false end) (positions (extents n))
  | Greatest w x => same (s x) (map Window.size w) && same (extents n) (map Window.out w)
  | Positive x | Bent _ x | Times _ x | Shifted _ x | Negated x => same (s x) (extents n)
  | Added x y | Subtracted x y => same (s x) (extents n) && same (s y) (extents n)
  | Contracted letters at_x _ _ x => let all := extents n ++ letters in
      same (pick at_x all) (s x) && forallb (fun a => Nat.ltb a (length all)) at_x
  | Layout l => forallb (fun p => match origin_of s (extents n) l p with Cell x q => inside (s x) q | Filled _ => true
    end) (positions (extents n))
  end.

Fixpoint all_some {A} (l : list (option A)) : option (list A) :=
  match l with
  | [] => Some []
  | Some a :: l => match all_some l with Some l => Some (a :: l) | None => None end
  | None :: _ => None
  end.
Section Compile.
(* any names: that no two are the same is checked by `ordered` *)
Variables (key_of : nat -> list Z -> key) (manners : nat -> manner).
Definition form_at (env : nat -> entry) x p := match sum_at (env x) p with Some f => f | None => zero_form end.
(* The cell of node i at p; None: it has none. *)
Definition new_cell (env : nat -> entry) (i : nat) (n : node) (sums : option (array (option form))) (p : list Z) :
  option cell :=
  let alone x (make : key -> cell) := match cell_at (env x) p with Some k => Some (make k) | None => None end in
  match what n with
  | Given low high => Some (Input (low p) (high p))
  | Positive x => alone x Relu
  | Bent f x => alone x (fun k => Bend k f)
  | Greatest w x => match all_some (map (cell_at (env x)) (AvgPool.cells w p)) with Some (j :: js) => Some (Max j js)
    | _ => None end
  | _ => match sums with
    | Some f => match f p with
      | Some f => let ps := products_of f in
          Some (Sum (Sums (map fst ps) zero (rounds (manners i)) (power (spread_of ps)) (single (manners i))))
      | None => None
      end
    | None => None
    end
  end.
Definition new_cells (env : nat -> entry) (i : nat) (n : node) (sums : option (array (option form))) : option network :=
  all_some (map (fun p => match new_cell env i n sums p with Some c => Some (key_of i p, c) | None => None end)
    (positions (extents n))).
Definition marked (m : option bool) (f : form) : form := match m with Some b => Marked b f | None => f end.
Definition add_node (env : nat -> entry) (i : nat) (n : node) : option (network * entry) :=
  if negb (fits env n) then None else
  let sums := match summed (fun x => extent (env x)) (extents n) (what n) (form_at env) with
    | Some f => Some (tabled (extents n) (fun p => marked (mark (manners i)) (f p))) | None => None end in
  let own := Entry (extents n) (fun p => Some (At (key_of i p))) (fun p => Some (key_of i p)) in
  match sums with
  | None => match new_cells env i n sums with Some cs => Some (cs, own) | None => None end
  | Some f => if celled n then match new_cells env i n sums
    with Some cs => Some (cs, Entry (extents n) f (fun p => Some (key_of i p)))
    | None => None end
    else Some ([], Entry (extents n) f (match what n with
      | Layout l => fun p => match origin_of (fun x => extent (env x)) (extents n) l p
        with Cell x q => cell_at (env x) q
        | Filled _ => None end
      | _ => fun _ => None
      end))
  end.
Definition reader (env : list entry) x := nth x env no_entry.
Fixpoint compile (nodes : list node) (env : list entry) : option (network * list entry) :=
  match nodes with
  | [] => Some ([], env)
  | n :: nodes => match add_node (reader env) (length env) n with
    | None => None
    | Some (cells, e) => match compile nodes (env ++ [e]) with
      | Some (net, env) => Some (cells ++ net, env)
      | None => None
      end
    end
  end.
End Compile.

(* --- what it means --- *)
Fixpoint run (at_input : nat -> array R) (nodes : list node) (env : list (list Z * array R)) :
  list (list Z * array R) :=
  match nodes with
  | [] => env
  | n :: nodes =>
      let read x := nth x env ([], fun _ => 0) in
      run at_input nodes (env ++ [(extents n, given at_input (fun x => fst (read x)) (length env) (extents n) (what n)
        (fun x => snd (read x)))])
  end.

Lemma same_shape_eq a b : same_shape a b = true -> a = b.
Proof. apply Readers.same_spec. Qed.
Lemma inside_in s : forall p, inside s p = true -> In p (positions s).
Proof.
  unfold inside, positions. induction s as [|n s IH]; intros [|i p] H; simpl in H; try discriminate; [now left|].
  apply andb_prop in H as [L H]. apply andb_prop in H as [I H]. rewrite Window.in_positions.
  constructor; [now apply Window.within_spec|].
  rewrite <- Window.in_positions. apply IH. now rewrite L, H.
Qed.
Lemma all_some_map {A} (l : list (option A)) : forall k, all_some l = Some k -> l = map Some k.
Proof.
  induction l as [|[a|] l IH]; intros k; simpl; try discriminate; [now intros [= <-]|].
  destruct (all_some l) as [m|]; [|discriminate]. intros [= <-]. simpl. now rewrite (IH m).
Qed.
Lemma all_some_in {A} (l : list (option A)) k : all_some l = Some k -> forall a, In (Some a) l -> In a k.
Proof. intros H a I. rewrite (all_some_map _ _ H) in I. apply in_map_iff in I. destruct I as [b [[= ->] I]]. exact I.
Qed.

Lemma gather_same w weight x y o : In o (Window.outs w) -> (forall i, In i (Window.ins w) -> x i = y i) ->
  Readers.gather_along Numbers.reals w weight x o = Readers.gather_along Numbers.reals w weight y o.
Proof.
  intros O H. unfold Readers.gather_along, Relation.gather. apply Numbers.sum_ext. intros t _.
  destruct (Window.reads_all w o t) as [i|] eqn:E; auto. rewrite (H i); auto. eapply Window.reads_all_inside; eauto.
Qed.
Lemma readers_same w i f h : (forall o t, In o (Window.outs w) -> f o t = h o t) ->
  Readers.readers Numbers.reals w i f = Readers.readers Numbers.reals w i h.
Proof.
  intros H. rewrite !Readers.readers_all. apply Numbers.sum_ext. intros o O. apply Numbers.sum_ext. intros t _.
  now rewrite H.
Qed.

Lemma maximum_above vs : forall v, v <= maximum v vs.
Proof. unfold maximum. induction vs as [|a vs IH]; intros v; simpl; [lra|]. eapply Rle_trans; [apply Rmax_l | apply IH].
Qed.
Lemma maximum_all vs : forall v a, In a vs -> a <= maximum v vs.
Proof.
  unfold maximum. induction vs as [|b vs IH]; intros v a; simpl; [intros []|]. intros [->|H]; [|now apply IH].
  eapply Rle_trans; [apply Rmax_r | apply maximum_above].
Qed.
Lemma maximum_one vs : forall v, In (maximum v vs) (v :: vs).
Proof.
  unfold maximum. induction vs as [|a vs IH]; intros v; simpl; [now left|]. destruct (IH (Rmax v a)) as [E|H]; [|auto].
  rewrite <- E. unfold Rmax. destruct (Rle_dec v a); auto.
Qed.
Lemma real_order : MaxPool.weak_order less_real.
Proof.
  unfold MaxPool.weak_order, less_real. repeat split; intros; repeat match goal with
    | |- context [if Rlt_dec ?a ?b then _ else _] => destruct (Rlt_dec a b)
    | H : context [if Rlt_dec ?a ?b then _ else _] |- _ => destruct (Rlt_dec a b) end; auto; try discriminate; lra.
Qed.
Lemma winner_maximum (v : array R) a l i : MaxPool.first_winner less_real v (a :: l) = Some i ->
  v i = maximum (v a) (map v l).
Proof.
  intros W. pose proof (MaxPool.first_winner_in _ _ _ _ real_order W) as I. apply Rle_antisym.
  - destruct I as [<-|I]; [apply maximum_above | apply maximum_all; now apply in_map].
  - assert (G : forall j, In j (a :: l) -> v j <= v i).
    { intros j J. pose proof (MaxPool.first_winner_greatest _ _ _ _ j real_order W J) as L. unfold less_real in L.
      destruct (Rlt_dec (v i) (v j)); [discriminate | lra]. }
    destruct (maximum_one (map v l) (v a)) as [<-|H]; [apply G; now left|].
    apply in_map_iff in H. destruct H as [j [<- J]]. apply G. now right.
Qed.

Lemma same_length {A B} (r : A -> B -> Prop) l m : Forall2 r l m -> length l = length m.
Proof. induction 1; simpl; auto. Qed.
Lemma some_same {A} (a b : A) : Some a = Some b -> a = b.
Proof. congruence. Qed.

Lemma positions_app a b p q : In p (positions a) -> In q (positions b) -> In (p ++ q) (positions (a ++ b)).
Proof. unfold positions. rewrite !Window.in_positions. intros P Q. now apply Forall2_app. Qed.
Lemma pick_in which all p : In p (positions all) -> forallb (fun a => Nat.ltb a (length all)) which = true ->
  In (pick which p) (positions (pick which all)).
Proof.
  unfold positions, pick. rewrite !Window.in_positions. intros P W. rewrite forallb_forall in W.
  induction which as [|a which IH]; simpl; constructor.
  - assert (A : (a < length all)%nat) by (apply Nat.ltb_lt, W; now left). clear - P A. revert a A.
    induction P as [|i n p all I P IH]; intros [|a] A; simpl in *; try lia. apply IH. lia.
  - apply IH. intros x Hx. apply W. now right.
Qed.

Section Meaning.
Variables (key_of : nat -> list Z -> key) (manners : nat -> manner) (net : network) (at_input g : key -> R).
Hypothesis exact : evaluates net at_input g.
Variable input : nat -> array R.
(* The input cells of node i hold its input. *)
Definition held (i : nat) (n : node) : Prop := forall low high p, what n = Given low high ->
  In p (positions (extents n)) ->
  at_input (key_of i p) = input i p.

(* The sums and the cells of an entry have these values. *)
Definition agrees (e : entry) (v : array R) : Prop := forall p, In p (positions (extent e)) ->
  (exists f, sum_at e p = Some f /\ amount g f = v p) /\ forall k, cell_at e p = Some k -> g k = v p.

Lemma form_agrees e v p : agrees e v -> In p (positions (extent e)) ->
  amount g (match sum_at e p with Some f => f | None => zero_form end) = v p.
Proof. intros A P. destruct (A p P) as [[f [-> E]] _]. exact E. Qed.

Lemma summed_values (env : nat -> entry) vs i n f : (forall x, agrees (env x) (vs x)) -> fits env n = true ->
  summed (fun x => extent (env x)) (extents n) (what n) (form_at env) = Some f ->
  forall p, In p (positions (extents n)) -> amount g (f p) =
    given input (fun x => extent (env x)) i (extents n) (what n) vs
    p.
Proof.
  intros A F S p P. unfold fits in F. assert (V : forall x q, In q (positions (extent (env x))) ->
    amount g (form_at env x q) = vs x q)
    by (intros; now apply form_agrees).
  destruct (what n) as [lo hi|b gr ci co w weights bias x|b gr ci co w weights bias x|w d x|w x|x|bf x|x y|x y|c x|c
    x|x|ls at_x at_w weights x|l]; cbn [summed] in S;
    try discriminate; apply some_same in S; subst f; cbn [amount given].
  - apply andb_prop in F as [X N]. apply same_shape_eq in X, N. unfold Conv.conv.
    rewrite with_bias_amount, gathered_amount.
    change (Numbers.add Numbers.reals) with Rplus. apply (f_equal (Rplus _)).
    apply gather_same; [unfold Window.outs; now rewrite <- N|]. intros q Q. apply V. now rewrite X.
  - apply andb_prop in F as [X N]. apply same_shape_eq in X, N. unfold Conv.conv_transpose, Readers.scatter_along.
    rewrite with_bias_amount, scattered_amount. change (Numbers.add Numbers.reals) with Rplus.
    apply (f_equal (Rplus _)). apply readers_same. intros o t O. cbn [amount]. rewrite V by (now rewrite X).
    reflexivity.
  - apply andb_prop in F as [F D]. apply andb_prop in F as [X N]. apply same_shape_eq in X, N.
    rewrite forallb_forall in D. specialize (D p P).
    rewrite gathered_amount. unfold AvgPool.avg_pool.
    assert (T : forall y, Readers.gather_along Numbers.reals w
      (fun o _ => real match part_of d w o with Some c => c | None => zero end) y p =
      Readers.gather_along Numbers.reals w (fun o _ => AvgPool.share Numbers.reals (real_divisor d) w o) y p).
    { intros y. unfold Readers.gather_along, Relation.gather. apply Numbers.sum_ext. intros t _. destruct
        (part_of d w p) as [c|] eqn:E; [|discriminate].
      now rewrite (part_share _ _ _ _ E). }
    rewrite T. apply gather_same; [unfold Window.outs; now rewrite <- N|]. intros q Q. apply V. now rewrite X.
  - apply andb_prop in F as [X Y]. apply same_shape_eq in X, Y. rewrite !V; rewrite ?X, ?Y; auto.
  - apply andb_prop in F as [X Y]. apply same_shape_eq in X, Y. rewrite !V by (rewrite ?X, ?Y; auto).
    autorewrite with real. ring.
  - apply same_shape_eq in F. rewrite V by (now rewrite F). reflexivity.
  - apply same_shape_eq in F. rewrite V by (now rewrite F). reflexivity.
  - apply same_shape_eq in F. rewrite V by (now rewrite F). autorewrite with real. ring.
  - apply andb_prop in F as [X L]. apply same_shape_eq in X. unfold Numbers.sum.
    assert (I : forall s, In s (positions ls) -> In (pick at_x (p ++ s)) (positions (extent (env x)))).
    { intros s Is. rewrite <- X. eapply pick_in; eauto. now apply positions_app. }
    revert I. generalize (positions ls) as ss. induction ss as [|s ss IH]; intros I; cbn [fold_right];
      [apply real_zero|].
    cbn [amount]. rewrite V by (apply I; now left). rewrite IH by (intros; apply I; now right). reflexivity.
  - rewrite forallb_forall in F. specialize (F p P). cbn [given]. destruct (origin_of _ _ l p) as [x q|c];
      [|reflexivity]. apply V. now apply inside_in.
Qed.

Lemma cells_in {A B} (make : A -> option B) (l : list A) (k : A -> key) cs :
  all_some (map (fun p => match make p with Some c => Some (k p, c) | None => None end) l) = Some cs ->
  forall p, In p l -> exists c, make p = Some c /\ In (k p, c) cs.
Proof.
  intros H p P. pose proof (all_some_map _ _ H) as E.
  assert (I : In (match make p with Some c => Some (k p, c) | None => None end) (map Some cs)).
  { rewrite <- E. now apply (in_map (fun p => match make p with Some c => Some (k p, c) | None => None end)). }
  destruct (make p) as [c|]; apply in_map_iff in I; destruct I as [b [Eb I]]; [|discriminate]. injection Eb as ->.
  eauto.
Qed.
Lemma marked_amount m f : amount g (marked m f) = amount g f.
Proof. destruct m; reflexivity. Qed.
Lemma read_agrees (env : nat -> entry) vs x p k : (forall x, agrees (env x) (vs x)) ->
  In p (positions (extent (env x))) -> cell_at (env x) p = Some k -> g k = vs x p.
Proof. intros A P K. destruct (A x p P) as [_ C]. now apply C. Qed.

Lemma new_cell_value (env : nat -> entry) vs i n sums p c : held i n -> (forall x, agrees (env x) (vs x)) ->
  fits env n = true -> In p (positions (extents n)) ->
  (forall f s, sums = Some f -> f p = Some s -> amount g s =
    given input (fun x => extent (env x)) i (extents n) (what n) vs p) ->
  new_cell manners env i n sums p = Some c -> exact_of at_input g (key_of i p) c =
    given input (fun x => extent (env x)) i (extents n) (what n) vs p.
Proof.
  intros T A F P S. unfold new_cell. intros N. destruct (what n) as
    [lo hi|b gr ci co w weights bias x|b gr ci co w weights bias x|w d x|w x|x|bf x|x y|x y|q x|q x|x|ls at_x at_w
    weights x|l] eqn:W;
    try (destruct sums as [f|] eqn:E; [|discriminate]; destruct (f p) as [s|] eqn:V; [|discriminate];
      apply some_same in N; subst c;
      cbn [exact_of terms]; rewrite products_line; exact (S f s eq_refl V)).
  - apply some_same in N; subst c. cbn [exact_of given]. eapply T; eauto.
  - unfold fits in F. rewrite W in F. apply andb_prop in F as [X O]. apply same_shape_eq in X, O.
    destruct (all_some (map (cell_at (env x)) (AvgPool.cells w p))) as [[|j js]|] eqn:K; try discriminate.
    apply some_same in N; subst c. cbn [exact_of given].
    apply all_some_map in K. assert (Vs : forall l ks, incl l (AvgPool.cells w p) ->
      map (cell_at (env x)) l = map Some ks -> map g ks = map (vs x) l).
    { induction l as [|a l IH]; intros [|k ks] L; simpl; try discriminate; auto. intros H. injection H as H1 H2.
      f_equal; [|apply IH; auto; intros z Hz; apply L; now right]. eapply read_agrees; eauto. rewrite X.
      assert (I : In a (AvgPool.cells w p)) by (apply L; now left). unfold AvgPool.cells in I. apply in_flat_map in I.
      destruct I as [t [_ I]].
      destruct (Window.reads_all w p t) eqn:R; [|destruct I]. destruct I as [<-|[]]. eapply Window.reads_all_inside;
        eauto. }
    unfold MaxPool.max_pool, MaxPool.take, MaxPool.winner. specialize (Vs _ _ (incl_refl _) K).
    destruct (AvgPool.cells w p) as [|a l]; [discriminate|]. cbn [map] in Vs. injection Vs as Ha Hl. rewrite Ha, Hl.
    destruct (MaxPool.first_winner less_real (vs x) (a :: l)) as [m|] eqn:M; [symmetry; now apply winner_maximum|].
    apply MaxPool.first_winner_none in M. discriminate.
  - unfold fits in F. rewrite W in F. apply same_shape_eq in F. destruct (cell_at (env x) p) as [k|] eqn:K;
      [|discriminate].
    apply some_same in N; subst c. cbn [exact_of given]. rewrite (read_agrees env vs x p k); auto. now rewrite F.
  - unfold fits in F. rewrite W in F. apply same_shape_eq in F. destruct (cell_at (env x) p) as [k|] eqn:K;
      [|discriminate].
    apply some_same in N; subst c. cbn [exact_of given]. rewrite (read_agrees env vs x p k); auto. now rewrite F.
Qed.

Lemma node_agrees (env : nat -> entry) vs i n cells e : held i n -> (forall x, agrees (env x) (vs x)) ->
  add_node key_of manners env i n = Some (cells, e) -> incl cells net ->
  agrees e (given input (fun x => extent (env x)) i (extents n) (what n) vs).
Proof.
  intros T A H I. unfold add_node, new_cells in H. destruct (fits env n) eqn:F; [|discriminate]. cbn [negb] in H.
  set (sums := match summed (fun x => extent (env x)) (extents n) (what n) (form_at env) with
    | Some f => Some (tabled (extents n) (fun p => marked (mark (manners i)) (f p))) | None => None end) in *.
  assert (S : forall f, sums = Some f -> forall p, In p (positions (extents n)) -> exists s, f p = Some s /\
    amount g s = given input (fun x => extent (env x)) i (extents n) (what n) vs p).
  { intros f E p P. unfold sums in E. destruct (summed (fun x => extent (env x)) (extents n) (what n) (form_at env)) as
      [h|] eqn:Q; [|discriminate]. apply some_same in E. subst f.
    eexists. split; [now apply tabled_at|]. rewrite marked_amount. eapply summed_values; eauto. }
  assert (C : forall cs, all_some (map (fun p => match new_cell manners env i n sums p
    with Some c => Some (key_of i p, c) | None => None end) (positions (extents n))) = Some cs ->
    incl cs net -> forall p, In p (positions (extents n)) ->
      g (key_of i p) = given input (fun x => extent (env x)) i (extents n) (what n) vs p).
  { intros cs K L p P. destruct (cells_in _ _ _ _ K p P) as [c [N M]]. rewrite (exact _ _ (L _ M)).
    eapply new_cell_value; eauto. intros f s E V. destruct (S f E p P) as [s' [V' G]]. congruence. }
  destruct sums as [f|].
  - destruct (celled n).
    + match type of H with context [all_some ?l] => destruct (all_some l) as [cs|] eqn:K end; [|discriminate].
      injection H as <- <-. intros p P. cbn [extent] in P. split; [now apply S|].
      cbn [cell_at]. intros k [= <-]. eapply C; eauto.
    + injection H as <- <-. intros p P. cbn [extent] in P. split; [now apply S|]. cbn [cell_at]. unfold fits in F.
      destruct (what n) as [lo hi|b gr ci co w weights bias x|b gr ci co w weights bias x|w d x|w x|x|bf x|x y|x y|q x|q
        x|x|ls at_x at_w weights x|l]; try discriminate.
      rewrite forallb_forall in F. specialize (F p P). intros k. cbn [given]. destruct (origin_of _ _ l p) as [x q|z];
        [|discriminate].
      intros K. eapply read_agrees; eauto. now apply inside_in.
  - match type of H with context [all_some ?l] => destruct (all_some l) as [cs|] eqn:K end; [|discriminate].
    injection H as <- <-. intros p P. cbn [extent] in P. cbn [sum_at cell_at].
    assert (G : g (key_of i p) = given input (fun x => extent (env x)) i (extents n) (what n) vs p) by
      (eapply C; eauto).
    split; [eexists; split; [reflexivity | exact G]|]. now intros k [= <-].
Qed.

Definition matches_values (e : entry) (v : list Z * array R) : Prop := extent e = fst v /\ agrees e (snd v).
Lemma reader_matches env vs : Forall2 matches_values env vs ->
  forall x, matches_values (reader env x) (nth x vs ([], fun _ => 0)).
Proof.
  unfold reader. induction 1 as [|e v env vs A H IH]; intros [|x]; simpl; auto; (split; [reflexivity|]); intros p _;
    split; try discriminate;
    exists zero_form; (split; [reflexivity | apply real_zero]).
Qed.
Lemma extent_of_node (env : nat -> entry) i n cells e : add_node key_of manners env i n = Some (cells, e) ->
  extent e = extents n.
Proof.
  unfold add_node, new_cells. destruct (negb _); [discriminate|]. destruct (summed _ _ _ _) as [f|];
    [destruct (celled n)|];
    try (match goal with |- context [all_some ?l] => destruct (all_some l); [|discriminate] end); now intros [= _ <-].
Qed.
Lemma given_same op ext ext2 i s vs : (forall x, ext x = ext2 x) ->
  forall p, given input ext i s op vs p = given input ext2 i s op vs p.
Proof.
  intros E p. destruct op; cbn [given]; auto. assert (O : origin_of ext s l p = origin_of ext2 s l p); [|now rewrite O].
  destruct l as [x|ax x|st sp x|lo c x|x|ax xs]; cbn [origin_of]; rewrite ?E; auto.
  generalize (nth ax p 0%Z). induction xs as [|x xs IH]; intros z; cbn [joined]; auto. now rewrite E, IH.
Qed.
Lemma compiled nodes : forall env vs part env', (forall i n, nth_error nodes i = Some n -> held (length env + i) n) ->
  Forall2 matches_values env vs -> compile key_of manners nodes env = Some (part, env') ->
  incl part net -> Forall2 matches_values env' (run input nodes vs).
Proof.
  induction nodes as [|n nodes IH]; intros env vs part env' T A H I; cbn [compile run] in *; [now injection H as _ <-|].
  destruct (add_node key_of manners (reader env) (length env) n) as [[cells e]|] eqn:N; [|discriminate].
  destruct (compile key_of manners nodes (env ++ [e])) as [[rest env2]|] eqn:K; [|discriminate]. injection H as <- <-.
  eapply IH; [| |exact K | intros a Ha; apply I, in_or_app; now right].
  { intros i m M. rewrite app_length. cbn [length]. rewrite <- Nat.add_assoc. exact (T (S i) m M). }
  apply Forall2_app; auto. constructor; [|constructor]. rewrite <- (same_length _ _ _ A).
  pose proof (extent_of_node _ _ _ _ _ N) as X.
  pose proof (reader_matches _ _ A) as M. eapply node_agrees in N;
    [|rewrite <- (Nat.add_0_r (length env)); now apply T | intros x; apply (M x) | intros a Ha; apply I, in_or_app;
    now left].
  split; [exact X|]. intros p P. specialize (N p P). cbn [snd].
  rewrite (given_same _ _ (fun x => extent (reader env x))) by (intros x; symmetry; apply (M x)). exact N.
Qed.
End Meaning.

(* At every position that has a cell, the cell's exact value is the operator's: conv, pools and the rest as Conv.v,
   AvgPool.v and MaxPool.v say, at the input that the input cells hold. *)
Theorem compiled_values key_of manners nodes net env at_input g input : compile key_of manners nodes []
  = Some (net, env) ->
  evaluates net at_input g -> (forall i n, nth_error nodes i = Some n -> held key_of at_input input i n) ->
  length env = length nodes /\ forall i p k, In p (positions (extent (reader env i))) ->
    cell_at (reader env i) p = Some k ->
    g k = snd (nth i (run input nodes []) ([], fun _ => 0)) p.
Proof.
  intros C E T. assert (A : Forall2 (matches_values g) env (run input nodes [])).
  { eapply (compiled key_of manners net at_input g E input nodes [] [] net env); auto using incl_refl. }
  split.
  - rewrite (same_length _ _ _ A). clear. assert (G :
      forall ns vs, length (run input ns vs) = (length vs + length ns)%nat); [|apply G].
    induction ns as [|n ns IH]; intros vs; cbn [run length]; [lia|]. rewrite IH, app_length. simpl. lia.
  - intros i p k P K. destruct (reader_matches g _ _ A i) as [_ V]. destruct (V p P) as [_ G]. auto.
Qed.
