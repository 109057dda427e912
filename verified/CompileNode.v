(* Executions of a graph node by node, and that the compiled roundings R are enough for them.

   A runtime that merges no nodes computes a cell of a linear node from the values of the nodes that it reads: it adds
   up the node's own terms, which `own_terms` lists operator by operator, in any order, with or without fused
   multiply-adds; padded taps are left out. `adds_up unit n terms t` says that formula t is such a sum, in which no term
   meets more than n roundings; `by_node` says it of all nodes of a graph, one in terms of those before it, with at most
   `own_roundings` (CompileCount.v) per node. Two readers of a value may compute it by two such formulas.
   `by_node_formula`: every such formula of a cell is one of the class that the compiled network states for that cell:
   multiplied out its products are those of the network, and none meets more than R roundings. `graph_binary32`: so what
   `check_graph` accepts holds of every binary32 execution of the graph, node by node. `by_node_has_values`: there are
   such formulas, as `own_roundings` leaves room for sums in any order. Of merged nodes nothing is said here. *)
From Coq Require Import Reals ZArith List Permutation Lra Lia Bool.
From Flocq Require Import Core BinarySingleNaN.
From Specgrad Require RoundingBinary Window Conv AvgPool Readers.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckBend CheckExecution CheckSums CheckExact Check
  CheckBinary Compile CompileCount CompileCheck.
Import ListNotations.
Open Scope R_scope.

(* --- what a node adds up --- *)
Definition gather_terms (w : list Window.axis) (weight : list Z -> list Z -> number) (x : nat) (o : list Z) :
  list (number * origin) :=
  flat_map (fun t => match Window.reads_all w o t with Some i => [(weight o t, Cell x i)] | None => [] end)
    (Window.taps w).
Fixpoint scatter_terms (w : list Window.axis) (i : list Z) (f : list Z -> list Z -> number * origin) :
  list (number * origin) :=
  match w, i with
  | [], [] => [f [] []]
  | a :: w, i :: is => flat_map (fun o => flat_map (fun t =>
      match Window.reads a o t with
      | Some j => if Z.eqb j i then scatter_terms w is (fun os ts => f (o :: os) (t :: ts)) else []
      | None => []
      end) (Window.range (Window.kernel a))) (Window.range (Window.out a))
  | _, _ => []
  end.
Definition bias_terms (bias : option (array number)) (c : list Z) : list (number * origin) :=
  match bias with Some b => [(one, Filled (b c))] | None => [] end.
(* Coefficients, and what each is multiplied with: a cell of a node that is read, or a number. *)
Definition own_terms (extent : nat -> list Z) (shape : list Z) (op : operator) (p : list Z) : list (number * origin) :=
  match op with
  | Conv b g ci co w weights bias x => gather_terms (Conv.conv_window b g ci co w)
      (fun o t => weights (Conv.weight_at o t)) x p ++ bias_terms bias (Conv.channel p)
  | Transposed b g ci co w weights bias x => scatter_terms (Conv.conv_window b g ci co w) p
      (fun o t => (weights (Conv.weight_at o t), Cell x o)) ++ bias_terms bias (Conv.channel p)
  | Average w d x => gather_terms w (fun o _ => match part_of d w o with Some c => c | None => zero end) x p
  | Compile.Added x y => [(one, Cell x p); (one, Cell y p)]
  | Subtracted x y => [(one, Cell x p); (neg one, Cell y p)]
  | Times c x => [(c p, Cell x p)]
  | Shifted c x => [(one, Cell x p); (one, Filled (c p))]
  | Negated x => [(neg one, Cell x p)]
  | Contracted letters at_x at_w weights x =>
      map (fun s => (weights (pick at_w (p ++ s)), Cell x (pick at_x (p ++ s)))) (positions letters)
  | Layout l => [(one, origin_of extent shape l p)]
  | Given _ _ | Greatest _ _ | Positive _ | Bent _ _ => []
  end.

(* --- sums in any order --- *)
Section Sums.
Variable unit : R.
(* A number may count as zero where it is subnormal. *)
Inductive held_as : formula -> formula -> Prop := as_is t : held_as t t | flushed t : held_as t (Rounded 0 t).
Inductive product_of (k t : formula) : formula -> Prop :=
  product_left : product_of k t (Multiplied k t) | product_right : product_of k t (Multiplied t k).
(* t adds up coefficients times values, and no term meets more than n roundings; each is at most the unit.
   adds_again     a sum that is rounded once more, as where it is stored
   adds_scaled    values are added first, and the sum is multiplied with the coefficient that all have: averages *)
Inductive adds_up : nat -> list (number * formula) -> formula -> Prop :=
  | adds_value c t : real c = 1 -> adds_up 0 [(c, t)] t
  | adds_negated c t : real c = -1 -> adds_up 0 [(c, t)] (Multiplied (Constant (-1)) t)
  | adds_product c t k t' r e : held_as (Constant (real c)) k -> held_as t t' -> product_of k t' r -> 0 <= e <= unit ->
      adds_up 1 [(c, t)] (Rounded e r)
  | adds_sum n m l l' a b a' b' e : adds_up n l a -> adds_up m l' b -> held_as a a' -> held_as b b' -> 0 <= e <= unit ->
      adds_up (S (max n m)) (l ++ l') (Rounded e (CheckTrees.Added a' b'))
  | adds_fused n l c t k t' r a a' e : adds_up n l a -> held_as a a' -> held_as (Constant (real c)) k -> held_as t t' ->
      product_of k t' r -> 0 <= e <= unit -> adds_up (S n) ((c, t) :: l) (Rounded e (CheckTrees.Added r a'))
  | adds_again n l a a' e : adds_up n l a -> held_as a a' -> 0 <= e <= unit -> adds_up (S n) l (Rounded e a')
  | adds_scaled n l c a a' k r e : adds_up n l a -> Forall (fun ct => real (fst ct) = 1) l -> held_as a a' ->
      held_as (Constant (real c)) k -> product_of k a' r -> 0 <= e <= unit ->
      adds_up (S n) (map (fun ct => (c, snd ct)) l) (Rounded e r).

(* --- graphs --- *)
(* A value as a runtime may have it: a formula, and its addends in the order of the compiled products; None: an exact
   zero, of padding, that is no addend. *)
Definition value := option (formula * list addend) -> Prop.
Definition wide_of (c : number) : R := Rmax 1 (Rabs (real c)).
Definition weighted (c : number) (ms : list addend) : list addend := map (times (Addend (real c) (wide_of c) [])) ms.
Definition origin_value (env : nat -> array value) (o : origin) : value :=
  match o with
  | Cell x q => env x q
  | Filled c => fun r => r = if Z.eqb (mantissa c) 0 then None
      else Some (Constant (real c), [Addend (real c) (wide_of c) []])
  end.
Definition item := (number * (formula * list addend))%type.
Fixpoint live (l : list (number * option (formula * list addend))) : list item :=
  match l with [] => [] | (c, Some r) :: l => (c, r) :: live l | (_, None) :: l => live l end.
(* A sum of these terms with at most `own` roundings. *)
Definition node_value (own : Z) (ts : list (number * origin)) (env : nat -> array value) : value := fun r =>
  exists got, Forall2 (fun co cr => fst cr = fst co /\ origin_value env (snd co) (snd cr)) ts got /\
    match live got with
    | [] => r = None
    | its => exists order n t, Permutation its order /\ adds_up n (map (fun it => (fst it, fst (snd it))) order) t /\
        (Z.of_nat n <= own)%Z /\ r = Some (t, flat_map (fun it => weighted (fst it) (snd (snd it))) its)
    end.
(* Of a node that is not linear: what was read of its cell. *)
Definition node_values (key_of : nat -> list Z -> key) (extent : nat -> list Z) (i : nat) (shape : list Z)
  (op : operator) (env : nat -> array value) : array value :=
  if is_linear op then fun p => node_value (own_roundings op) (own_terms extent shape op p) env
  else fun p r => exists v, r = Some (Read (key_of i p) v, [Addend 1 1 [(key_of i p, v)]]).
Definition no_value : list Z * array value := ([], fun _ r => r = None).
Fixpoint by_node (key_of : nat -> list Z -> key) (nodes : list node) (env : list (list Z * array value)) :
  list (list Z * array value) :=
  match nodes with
  | [] => env
  | n :: nodes =>
      let read x := nth x env no_value in
      by_node key_of nodes (env ++ [(extents n, node_values key_of (fun x => fst (read x)) (length env) (extents n)
        (what n) (fun x => snd (read x)))])
  end.
End Sums.

(* --- how many roundings such a sum has --- *)
Section Bounds.
Variable unit : R.
Hypothesis unit_nonneg : 0 <= unit.
Let loss := least_normal.

Lemma power_at_least x n : 0 <= x -> 1 <= (1 + x) ^ n.
Proof. intros. apply pow_R1_Rle. lra. Qed.
Lemma power_more x n m : 0 <= x -> (n <= m)%nat -> (1 + x) ^ n <= (1 + x) ^ m.
Proof. intros. apply Rle_pow; [lra | assumption]. Qed.
Lemma loss_pos : 0 <= loss.
Proof. pose proof least_normal_pos. unfold loss. lra. Qed.

(* What is known of a formula: U and L bound its roundings and losses. *)
Definition sized (t : formula) (U L : R) : Prop := units_ok t /\ unit_product t <= U /\ loss_product t <= L.
Lemma sized_held t t' U L : held_as t t' -> sized t U L -> sized t' U ((1 + loss) * L).
Proof.
  intros H [K [A B]]. pose proof loss_pos as P. pose proof (loss_product_1 t). destruct H as [t|t].
  - split; [exact K|]. split; [exact A|]. nra.
  - split; [split; [lra | exact K]|]. simpl. split; [rewrite Rplus_0_r, Rmult_1_l; exact A|].
    fold loss. apply Rmult_le_compat_l; lra.
Qed.
Lemma sized_constant c k : held_as (Constant c) k -> sized k 1 (1 + loss).
Proof.
  intros H. rewrite <- (Rmult_1_r (1 + loss)). eapply sized_held; [exact H|]. repeat split; simpl; lra.
Qed.
Lemma sized_times k t r U L : sized k 1 (1 + loss) -> sized t U L -> product_of k t r ->
  sized r U ((1 + loss) * L).
Proof.
  intros [K1 [K2 K3]] [T1 [T2 T3]] H. pose proof (unit_product_1 k K1). pose proof (unit_product_1 t T1).
  pose proof (loss_product_1 k). pose proof (loss_product_1 t). assert (E : unit_product k = 1) by lra.
  pose proof loss_pos. destruct H; (split; [now split|]); cbn [unit_product loss_product]; rewrite E; (split; [lra|]).
  - apply Rmult_le_compat; lra.
  - rewrite Rmult_comm. apply Rmult_le_compat; lra.
Qed.
Lemma sized_rounded t e U L : 0 <= e <= unit -> sized t U L -> sized (Rounded e t) ((1 + unit) * U) ((1 + loss) * L).
Proof.
  intros E [K [A B]]. pose proof (unit_product_1 t K). pose proof (loss_product_1 t). pose proof loss_pos.
  split; [split; [lra | exact K]|]. simpl. fold loss.
  split; [apply Rmult_le_compat; lra | apply Rmult_le_compat_l; lra].
Qed.
Lemma sized_more t U L U' L' : sized t U L -> U <= U' -> L <= L' -> sized t U' L'.
Proof. intros [K [A B]] HU HL. split; [exact K|]. split; lra. Qed.
Lemma sized_sum a b U L : sized a U L -> sized b U L -> sized (CheckTrees.Added a b) U L.
Proof.
  intros [K [A B]] [K' [A' B']]. split; [now split|]. simpl. split; apply Rmax_lub; assumption.
Qed.

Lemma adds_up_sized count terms f : adds_up unit count terms f -> forall U L, 1 <= U -> 1 <= L ->
  (forall ct, In ct terms -> sized (snd ct) U L) -> sized f ((1 + unit) ^ count * U) ((1 + loss) ^ (3 * count) * L).
Proof.
  pose proof loss_pos as P.
  assert (Pu : forall n, 1 <= (1 + unit) ^ n) by (intros; now apply power_at_least).
  assert (Pl : forall n, 1 <= (1 + loss) ^ n) by (intros; now apply power_at_least).
  assert (Mu : forall n m U, (n <= m)%nat -> 1 <= U -> (1 + unit) ^ n * U <= (1 + unit) ^ m * U).
  { intros. apply Rmult_le_compat_r; [lra | now apply power_more]. }
  assert (Ml : forall n m L, (n <= m)%nat -> 1 <= L -> (1 + loss) ^ n * L <= (1 + loss) ^ m * L).
  { intros. apply Rmult_le_compat_r; [lra | now apply power_more]. }
  assert (Step : forall n m a e U L, (n <= m)%nat -> 1 <= L -> 0 <= e <= unit ->
    sized a ((1 + unit) ^ n * U) ((1 + loss) ^ m * L) ->
    sized (Rounded e a) ((1 + unit) ^ S n * U) ((1 + loss) ^ S m * L)).
  { intros n m a e U L _ _ E A.
    replace ((1 + unit) ^ S n * U) with ((1 + unit) * ((1 + unit) ^ n * U)) by (simpl; ring).
    replace ((1 + loss) ^ S m * L) with ((1 + loss) * ((1 + loss) ^ m * L)) by (simpl; ring). now apply sized_rounded. }
  assert (Held : forall a a' n m U L, held_as a a' -> sized a ((1 + unit) ^ n * U) ((1 + loss) ^ m * L) ->
    sized a' ((1 + unit) ^ n * U) ((1 + loss) ^ S m * L)).
  { intros a a' n m U L H A. replace ((1 + loss) ^ S m * L) with ((1 + loss) * ((1 + loss) ^ m * L)) by (simpl; ring).
    eapply sized_held; eauto. }
  assert (Up : forall a n m n' m' U L, 1 <= U -> 1 <= L -> (n <= n')%nat -> (m <= m')%nat ->
    sized a ((1 + unit) ^ n * U) ((1 + loss) ^ m * L) -> sized a ((1 + unit) ^ n' * U) ((1 + loss) ^ m' * L)).
  { intros. eapply sized_more; [eassumption | apply Mu; auto | apply Ml; auto]. }
  assert (Scaled_by : forall c k a r n m U L, held_as (Constant c) k -> product_of k a r ->
    sized a ((1 + unit) ^ n * U) ((1 + loss) ^ m * L) -> sized r ((1 + unit) ^ n * U) ((1 + loss) ^ S m * L)).
  { intros c k a r n m U L H Q A. replace ((1 + loss) ^ S m * L) with ((1 + loss) * ((1 + loss) ^ m * L))
      by (simpl; ring). eapply sized_times; [eapply sized_constant; eassumption | exact A | exact Q]. }
  intros S. induction S as [c t C | c t C | c t k t' r e Hk Ht Hr E | n m l l' a b a' b' e Sa IHa Sb IHb Ha Hb E
    | n l c t k t' r a a' e Sa IHa Ha Hk Ht Hr E | n l a a' e Sa IHa Ha E | n l c a a' k r e Sa IHa F Ha Hk Hr E];
    intros U L HU HL Items.
  - simpl. rewrite !Rmult_1_l. apply (Items (c, t)). now left.
  - destruct (Items (c, t) (or_introl eq_refl)) as [K [A B]]. cbn [snd] in *. simpl. rewrite !Rmult_1_l.
    repeat split; auto; simpl; lra.
  - pose proof (Items (c, t) (or_introl eq_refl)) as A. cbn [snd] in A.
    apply (Step 0%nat 2%nat); auto. eapply Scaled_by; [exact Hk | exact Hr|]. eapply Held; [exact Ht|].
    simpl. now rewrite !Rmult_1_l.
  - replace (3 * Datatypes.S (max n m))%nat with (Datatypes.S (3 * max n m + 2)) by lia.
    apply (Step (max n m)); auto; [lia|]. apply sized_sum.
    + eapply Held in Ha; [|apply IHa; [exact HU | exact HL | intros; apply Items, in_or_app; auto]].
      eapply Up; [exact HU | exact HL | | | exact Ha]; lia.
    + eapply Held in Hb; [|apply IHb; [exact HU | exact HL | intros; apply Items, in_or_app; auto]].
      eapply Up; [exact HU | exact HL | | | exact Hb]; lia.
  - replace (3 * Datatypes.S n)%nat with (Datatypes.S (3 * n + 2)) by lia. apply (Step n); auto; [lia|].
    apply sized_sum.
    + pose proof (Items (c, t) (or_introl eq_refl)) as A. cbn [snd] in A.
      assert (A' : sized t ((1 + unit) ^ 0 * U) ((1 + loss) ^ 0 * L)) by (simpl; now rewrite !Rmult_1_l).
      eapply Held in Ht; [|exact A']. eapply Scaled_by in Hr; [|exact Hk | exact Ht].
      eapply Up; [exact HU | exact HL | | | exact Hr]; lia.
    + eapply Held in Ha; [|apply IHa; [exact HU | exact HL | intros; apply Items; now right]].
      eapply Up; [exact HU | exact HL | | | exact Ha]; lia.
  - replace (3 * Datatypes.S n)%nat with (Datatypes.S (3 * n + 2)) by lia. apply (Step n); auto; [lia|].
    eapply Held in Ha; [|exact (IHa U L HU HL Items)]. eapply Up; [exact HU | exact HL | | | exact Ha]; lia.
  - replace (3 * Datatypes.S n)%nat with (Datatypes.S (3 * n + 2)) by lia. apply (Step n); auto; [lia|].
    eapply Held in Ha; [|apply IHa; [exact HU | exact HL |]].
    + eapply Scaled_by in Hr; [|exact Hk | exact Ha]. eapply Up; [exact HU | exact HL | | | exact Hr]; lia.
    + intros ct H. apply (Items (c, snd ct)). now apply (in_map (fun ct => (c, snd ct))).
Qed.
End Bounds.

(* --- multiplied out it is the sum of its terms --- *)
Lemma held_addends t t' : held_as t t' -> addends t' = addends t.
Proof. now destruct 1. Qed.
Lemma constant_addends c k : held_as (Constant (real c)) k -> addends k = [Addend (real c) (wide_of c) []].
Proof. intros H. now rewrite (held_addends _ _ H). Qed.
Lemma product_addends c k t r : held_as (Constant (real c)) k -> product_of k t r ->
  addends r = weighted c (addends t).
Proof.
  intros K H. apply constant_addends in K. destruct H; cbn [addends]; rewrite K; unfold weighted.
  - cbn [flat_map]. apply app_nil_r.
  - induction (addends t) as [|m l IH]; simpl in *; [reflexivity|]. rewrite IH. f_equal. unfold times.
    cbn [coef wide vars app]. rewrite app_nil_r. f_equal; ring.
Qed.
Lemma weighted_one c l : real c = 1 -> weighted c l = l.
Proof.
  intros C. unfold weighted, wide_of. rewrite C, Rabs_R1, Rmax_left by lra. rewrite <- map_id. apply map_ext.
  intros [a b v]. unfold times. simpl. now rewrite !Rmult_1_l.
Qed.
Lemma flat_map_weighted c l : Forall (fun ct => real (fst ct) = 1) l ->
  weighted c (flat_map (fun ct : number * formula => weighted (fst ct) (addends (snd ct))) l) =
  flat_map (fun ct => weighted (fst ct) (addends (snd ct))) (map (fun ct => (c, snd ct)) l).
Proof.
  induction 1 as [|[a t] l H F IH]; simpl; [reflexivity|]. cbn [fst] in H. rewrite (weighted_one a) by exact H.
  unfold weighted at 1. rewrite map_app. f_equal. exact IH.
Qed.
Lemma adds_up_addends unit count terms f : adds_up unit count terms f ->
  Permutation (addends f) (flat_map (fun ct => weighted (fst ct) (addends (snd ct))) terms).
Proof.
  induction 1 as [c t C | c t C | c t k t' r e Hk Ht Hr E | n m l l' a b a' b' e Sa IHa Sb IHb Ha Hb E
    | n l c t k t' r a a' e Sa IHa Ha Hk Ht Hr E | n l a a' e Sa IHa Ha E | n l c a a' k r e Sa IHa F Ha Hk Hr E];
    cbn [flat_map addends fst snd].
  - rewrite app_nil_r, weighted_one by exact C. reflexivity.
  - unfold weighted, wide_of. rewrite C. reflexivity.
  - rewrite app_nil_r, (product_addends c k t' r Hk Hr), (held_addends _ _ Ht). reflexivity.
  - rewrite flat_map_app, (held_addends _ _ Ha), (held_addends _ _ Hb). now apply Permutation_app.
  - rewrite (product_addends c k t' r Hk Hr), (held_addends _ _ Ht), (held_addends _ _ Ha).
    now apply Permutation_app_head.
  - now rewrite (held_addends _ _ Ha).
  - rewrite (product_addends c k a' r Hk Hr), (held_addends _ _ Ha), <- flat_map_weighted by exact F.
    now apply Permutation_map.
Qed.

(* --- the compiled products, as coefficient, cell and bits --- *)
Definition product_seen := (R * option key * Z)%type.
Definition seen_as (p : term * Z) : product_seen := (real (weight (fst p)), source (fst p), snd p).
Definition scaled_by (r : R) (b : Z) (x : product_seen) : product_seen :=
  let '(v, s, k) := x in (r * v, s, (b + k)%Z).
Fixpoint spread_out (f : form) : list product_seen :=
  match f with
  | Fixed c => if Z.eqb (mantissa c) 0 then [] else [(real c, None, bits_above c)]
  | At k => [(1, Some k, 0%Z)]
  | Plus a b => spread_out a ++ spread_out b
  | Scaled c a => map (scaled_by (real c) (bits_above c)) (spread_out a)
  | Marked _ a => spread_out a
  end.
Lemma scaled_twice r b r' b' l : map (scaled_by r b) (map (scaled_by r' b') l) = map (scaled_by (r * r') (b + b')) l.
Proof.
  rewrite map_map. apply map_ext. intros [[v s] k]. unfold scaled_by. f_equal; [f_equal; ring | lia].
Qed.
Lemma scaled_nothing l : map (scaled_by 1 0) l = l.
Proof. rewrite <- map_id. apply map_ext. intros [[v s] k]. unfold scaled_by. now rewrite Rmult_1_l. Qed.
Lemma multiplied_seen f : forall w b mark rest,
  map seen_as (multiplied w b mark f rest) = map (scaled_by (real w) b) (spread_out f) ++ map seen_as rest.
Proof.
  induction f as [c|k|a IHa a' IHb|c a IHa|s a IHa]; intros w b mark rest; cbn [multiplied spread_out].
  - destruct (Z.eqb (mantissa c) 0); cbn [map app]; [reflexivity|]. unfold seen_as at 1, scaled_by.
    cbn [fst snd weight source]. now rewrite real_mul.
  - cbn [map app]. unfold seen_as at 1, scaled_by. cbn [fst snd weight source]. now rewrite Rmult_1_r, Z.add_0_r.
  - rewrite IHa, IHb, map_app, app_assoc. reflexivity.
  - rewrite IHa, real_mul, scaled_twice. reflexivity.
  - apply IHa.
Qed.
Lemma products_seen f : map seen_as (products_of f) =
  match spread_out f with [] => [(0, None, 0%Z)] | l => l end.
Proof.
  pose proof (multiplied_seen f one 0 None []) as H. rewrite real_one, scaled_nothing, app_nil_r in H.
  unfold products_of. destruct (multiplied one 0 None f []) as [|p ps]; rewrite <- H; [|reflexivity].
  unfold seen_as. simpl. now rewrite real_zero.
Qed.

(* An addend is such a product, whatever it has read. *)
Definition fits_product (x : product_seen) (m : addend) : Prop :=
  let '(r, s, k) := x in coef m = r /\ 1 <= wide m <= bpow radix2 k /\
  match s with None => vars m = [] | Some j => exists v, vars m = [(j, v)] end.
Lemma wide_bits c : 1 <= wide_of c <= bpow radix2 (bits_above c).
Proof.
  unfold wide_of, bits_above. split; [apply Rmax_l|]. destruct (Z.eqb_spec (mantissa c) 0) as [Z|N].
  - unfold real. rewrite Z, Rmult_0_l, Rabs_R0, Rmax_left by lra. apply Rle_refl.
  - apply Rmax_lub; [change 1 with (bpow radix2 0); apply bpow_le; lia|]. unfold real.
    rewrite Rabs_mult, (Rabs_pos_eq (bpow _ _)) by apply bpow_ge_0. rewrite <- abs_IZR.
    apply Rle_trans with (bpow radix2 (Z.log2_up (Z.abs (mantissa c)) + exponent c)); [|apply bpow_le; lia].
    rewrite bpow_plus. apply Rmult_le_compat_r; [apply bpow_ge_0|]. rewrite <- IZR_Zpower by apply Z.log2_up_nonneg.
    apply IZR_le. change (radix_val radix2) with 2%Z.
    destruct (Z.eq_dec (Z.abs (mantissa c)) 1) as [->|M]; [reflexivity|].
    apply Z.log2_up_spec. lia.
Qed.
Lemma bits_wide c : bpow radix2 (bits_below c) <= wide_of c.
Proof.
  unfold wide_of, bits_below. destruct (Z.eqb_spec (mantissa c) 0) as [Z|N]; [apply Rmax_l|].
  destruct (Z.max_spec 0 (Z.log2 (Z.abs (mantissa c)) + exponent c)) as [[L ->]|[L ->]]; [|apply Rmax_l].
  eapply Rle_trans; [|apply Rmax_r]. unfold real.
  rewrite Rabs_mult, (Rabs_pos_eq (bpow _ (exponent c))) by apply bpow_ge_0.
  rewrite <- abs_IZR, bpow_plus. apply Rmult_le_compat_r; [apply bpow_ge_0|].
  rewrite <- IZR_Zpower by apply Z.log2_nonneg. apply IZR_le. change (radix_val radix2) with 2%Z.
  apply Z.log2_spec. lia.
Qed.
Lemma fits_scaled c x m : fits_product x m ->
  fits_product (scaled_by (real c) (bits_above c) x) (times (Addend (real c) (wide_of c) []) m).
Proof.
  destruct x as [[r s] k]. intros [A [[B1 B2] C]]. pose proof (wide_bits c) as [W1 W2]. unfold times, scaled_by. simpl.
  split; [now rewrite A|]. split; [|exact C]. rewrite bpow_plus. split; [nra|]. apply Rmult_le_compat; lra.
Qed.
Lemma fits_weighted c xs ms : Forall2 fits_product xs ms ->
  Forall2 fits_product (map (scaled_by (real c) (bits_above c)) xs) (weighted c ms).
Proof. unfold weighted. induction 1; simpl; constructor; auto using fits_scaled. Qed.

(* The compiled form of a node is the sum of its own terms. *)
Definition form_of (env : nat -> entry) (o : origin) : form := match o with Cell x q => form_at env x q
  | Filled c => Fixed c end.
Definition spread_terms (env : nat -> entry) (ts : list (number * origin)) : list product_seen :=
  flat_map (fun co => map (scaled_by (real (fst co)) (bits_above (fst co))) (spread_out (form_of env (snd co)))) ts.
Lemma spread_gathered env w weight x o :
  spread_out (gathered w weight (form_at env x) o) = spread_terms env (gather_terms w weight x o).
Proof.
  unfold gathered, gather_terms, spread_terms. induction (Window.taps w) as [|t ts IH]; cbn [fold_right flat_map];
    [reflexivity|].
  destruct (Window.reads_all w o t) as [i|]; cbn [spread_out app flat_map fst snd form_of]; now rewrite IH.
Qed.
Lemma spread_scattered env w : forall i weight x,
  spread_out (scattered w i (fun o t => Scaled (weight o t) (form_at env x o))) =
  spread_terms env (scatter_terms w i (fun o t => (weight o t, Cell x o))).
Proof.
  assert (G : forall i f h, (forall o t, spread_out (f o t) = spread_terms env [h o t]) ->
    spread_out (scattered w i f) = spread_terms env (scatter_terms w i h)).
  { induction w as [|a w' IH]; intros [|i is] f h H; cbn [scattered scatter_terms]; try reflexivity; [apply H|].
    unfold spread_terms. induction (Window.range (Window.out a)) as [|o os IHo]; [reflexivity|].
    cbn [fold_right flat_map]. rewrite flat_map_app, <- IHo. set (s := fold_right _ zero_form os). clearbody s.
    clear IHo. induction (Window.range (Window.kernel a)) as [|t ts IHt]; [reflexivity|]. cbn [fold_right flat_map].
    rewrite flat_map_app, <- app_assoc, <- IHt.
    destruct (Window.reads a o t) as [j|]; [destruct (Z.eqb j i)|]; try reflexivity. cbn [spread_out]. f_equal.
    apply (IH is (fun os ts => f (o :: os) (t :: ts)) (fun os ts => h (o :: os) (t :: ts))). intros. apply H. }
  intros i weight x. apply G. intros o t. unfold spread_terms. simpl. now rewrite app_nil_r.
Qed.
Lemma spread_biased env bias c f ts : spread_out f = spread_terms env ts ->
  spread_out (with_bias bias c f) = spread_terms env (ts ++ bias_terms bias c).
Proof.
  intros H. unfold spread_terms in *. destruct bias as [b|]; cbn [with_bias bias_terms]; [|now rewrite app_nil_r].
  cbn [spread_out]. rewrite flat_map_app, <- H. cbn [flat_map fst snd form_of]. rewrite app_nil_r, real_one.
  change (bits_above one) with 0%Z. now rewrite scaled_nothing.
Qed.
Lemma spread_own env shape op f : summed (fun x => extent (env x)) shape op (form_at env) = Some f ->
  forall p, spread_out (f p) = spread_terms env (own_terms (fun x => extent (env x)) shape op p).
Proof.
  assert (One : forall l, map (scaled_by (real one) (bits_above one)) l = l).
  { intros l. rewrite real_one. change (bits_above one) with 0%Z. apply scaled_nothing. }
  destruct op as [lo hi|b gr ci co w weights bias x|b gr ci co w weights bias x|w d x|w x|x|bf x|x y|x y|c x|c
    x|x|ls at_x at_w weights x|l]; cbn [summed]; try discriminate; intros [= <-] p; cbn [own_terms].
  - apply spread_biased, spread_gathered.
  - apply spread_biased.
    exact (spread_scattered env (Conv.conv_window b gr ci co w) p (fun o t => weights (Conv.weight_at o t)) x).
  - apply spread_gathered.
  - unfold spread_terms. cbn [flat_map fst snd form_of spread_out]. now rewrite !One, app_nil_r.
  - unfold spread_terms. cbn [flat_map fst snd form_of spread_out]. now rewrite !One, app_nil_r.
  - unfold spread_terms. cbn [flat_map fst snd form_of spread_out]. now rewrite app_nil_r.
  - unfold spread_terms. cbn [flat_map fst snd form_of]. rewrite !One, app_nil_r. reflexivity.
  - unfold spread_terms. cbn [flat_map fst snd form_of spread_out]. now rewrite app_nil_r.
  - unfold spread_terms. induction (positions ls) as [|s ss IH]; [reflexivity|].
    cbn [fold_right map flat_map fst snd form_of spread_out]. now rewrite IH.
  - unfold spread_terms. cbn [flat_map fst snd]. rewrite One, app_nil_r. now destruct (origin_of _ _ l p).
Qed.

(* What a node reads lies in the nodes that it reads. *)
Lemma gather_inside w weight x o c y q : In (c, Cell y q) (gather_terms w weight x o) ->
  y = x /\ In q (positions (map Window.size w)).
Proof.
  unfold gather_terms. rewrite in_flat_map. intros [t [_ H]]. destruct (Window.reads_all w o t) as [i|] eqn:R;
    [|destruct H].
  destruct H as [[= _ <- <-]|[]]. split; [reflexivity|]. exact (Window.reads_all_inside _ _ _ _ R).
Qed.
Lemma scatter_inside w : forall i f ct, In ct (scatter_terms w i f) -> exists o t, ct = f o t /\
  In o (positions (map Window.out w)).
Proof.
  induction w as [|a w IH]; intros [|i is] f ct; cbn [scatter_terms].
  - intros [<-|[]]. exists [], []. split; [reflexivity | now left].
  - intros [].
  - intros [].
  - intros H. apply in_flat_map in H as [o [O H]]. apply in_flat_map in H as [t [_ H]].
    destruct (Window.reads a o t) as [j|]; [|destruct H]. destruct (Z.eqb j i); [|destruct H].
    destruct (IH _ _ _ H) as [os [ts [E Os]]]. exists (o :: os), (t :: ts). split; [exact E|].
    unfold positions in *. simpl. apply in_flat_map. exists o. split; [exact O | now apply in_map].
Qed.
Lemma bias_inside bias c' c x q : ~ In (c, Cell x q) (bias_terms bias c').
Proof. unfold bias_terms. destruct bias; simpl; [intros [H|[]]; discriminate | tauto]. Qed.
Lemma own_inside env n p : fits env n = true -> In p (positions (extents n)) -> forall c x q,
  In (c, Cell x q) (own_terms (fun x => extent (env x)) (extents n) (what n) p) -> In q (positions (extent (env x))).
Proof.
  intros F P c y q. unfold fits in F. destruct (what n) as [lo hi|b gr ci co w weights bias x
    |b gr ci co w weights bias x|w d x|w x|x|bf x|x z|x z|k x|k x|x|ls at_x at_w weights x|l]; cbn [own_terms];
    try (now intros []).
  - apply andb_prop in F as [X _]. apply same_shape_eq in X. intros H. apply in_app_or in H as [H|H];
      [|now apply bias_inside in H]. apply gather_inside in H as [-> Q]. now rewrite X.
  - apply andb_prop in F as [X _]. apply same_shape_eq in X. intros H. apply in_app_or in H as [H|H];
      [|now apply bias_inside in H]. apply scatter_inside in H as [o [t [[= _ -> ->] O]]]. now rewrite X.
  - apply andb_prop in F as [F _]. apply andb_prop in F as [X _]. apply same_shape_eq in X. intros H.
    apply gather_inside in H as [-> Q]. now rewrite X.
  - apply andb_prop in F as [X Y]. apply same_shape_eq in X, Y. intros [[= _ <- <-]|[[= _ <- <-]|[]]];
      rewrite ?X, ?Y; exact P.
  - apply andb_prop in F as [X Y]. apply same_shape_eq in X, Y. intros [[= _ <- <-]|[[= _ <- <-]|[]]];
      rewrite ?X, ?Y; exact P.
  - apply same_shape_eq in F. intros [[= _ <- <-]|[]]. now rewrite F.
  - apply same_shape_eq in F. intros [[= _ <- <-]|[E|[]]]; [now rewrite F | discriminate].
  - apply same_shape_eq in F. intros [[= _ <- <-]|[]]. now rewrite F.
  - apply andb_prop in F as [X L]. apply same_shape_eq in X. intros H. apply in_map_iff in H as [s [[= _ <- <-] S]].
    rewrite <- X. eapply pick_in; eauto. now apply positions_app.
  - rewrite forallb_forall in F. specialize (F p P). intros [E|[]]. injection E as _ E. rewrite E in F.
    now apply inside_in.
Qed.

(* --- one node --- *)
Section Node.
Variable unit : R.
Hypothesis unit_nonneg : 0 <= unit.
(* Of a value with the form f: multiplied out it is f, and it has at most so many roundings. *)
Definition good (bound : nat) (f : form) (r : option (formula * list addend)) : Prop :=
  match r with
  | None => spread_out f = []
  | Some (t, ms) => Permutation (addends t) ms /\ Forall2 fits_product (spread_out f) ms /\
      sized t ((1 + unit) ^ bound) ((1 + least_normal) ^ (3 * bound))
  end.
Lemma good_more n m f r : (n <= m)%nat -> good n f r -> good m f r.
Proof.
  intros L. destruct r as [[t ms]|]; [|auto]. intros [A [B C]]. split; [exact A|]. split; [exact B|].
  pose proof least_normal_pos. eapply sized_more; [exact C | |]; apply Rle_pow; try lra; lia.
Qed.
Lemma good_node own ts vs es f bound count r : node_value unit own ts vs r -> spread_out f = spread_terms es ts ->
  (forall c o r', In (c, o) ts -> origin_value vs o r' -> good bound (form_of es o) r') ->
  ((0 <= own)%Z -> (Z.to_nat own + bound <= count)%nat) -> good count f r.
Proof.
  intros [got [G L]] S Good C.
  assert (Ok : Forall2 fits_product (spread_terms es ts)
      (flat_map (fun it => weighted (fst it) (snd (snd it))) (live got)) /\
    forall it, In it (live got) -> Permutation (addends (fst (snd it))) (snd (snd it)) /\
      sized (fst (snd it)) ((1 + unit) ^ bound) ((1 + least_normal) ^ (3 * bound))).
  { clear L S. induction G as [|[c o] [c' r'] ts got [E V] G IH]; [split; [constructor | intros it []]|].
    cbn [fst snd] in *. subst c'. pose proof (Good c o r' (or_introl eq_refl) V) as A.
    destruct IH as [Fs Ok]; [intros; eapply Good; [right|]; eauto|]. unfold spread_terms. cbn [flat_map fst snd].
    destruct r' as [[t ms]|]; cbn [live].
    - destruct A as [A1 [A2 A3]]. cbn [flat_map fst snd]. split.
      + apply Forall2_app; [now apply fits_weighted | exact Fs].
      + intros it [<-|H]; [split; [exact A1 | exact A3] | now apply Ok].
    - simpl in A. rewrite A. split; [exact Fs | exact Ok]. }
  destruct Ok as [Fs Ok]. destruct (live got) as [|it its] eqn:Lv.
  - subst r. simpl in *. rewrite S. inversion Fs. reflexivity.
  - destruct L as [order [n [t [P [A [N ->]]]]]]. specialize (C ltac:(lia)). unfold good. split; [|split].
    + rewrite (adds_up_addends _ _ _ _ A). rewrite flat_map_concat_map, map_map. cbn [fst snd].
      rewrite <- flat_map_concat_map. rewrite <- P.
      assert (Each : forall l, (forall i, In i l -> Permutation (addends (fst (snd i))) (snd (snd i))) ->
        Permutation (flat_map (fun i : item => weighted (fst i) (addends (fst (snd i)))) l)
          (flat_map (fun i => weighted (fst i) (snd (snd i))) l)).
      { induction l as [|i l IH]; intros H; simpl; [reflexivity|].
        apply Permutation_app; [apply Permutation_map, H; now left | apply IH; intros; apply H; now right]. }
      apply Each. intros i I. now apply Ok.
    + now rewrite S.
    + pose proof least_normal_pos.
      eapply sized_more; [apply (adds_up_sized unit unit_nonneg _ _ _ A ((1 + unit) ^ bound)
        ((1 + least_normal) ^ (3 * bound))) | |].
      * apply pow_R1_Rle; lra.
      * apply pow_R1_Rle; lra.
      * intros ct I. apply in_map_iff in I as [i [<- I]]. apply Ok. eapply Permutation_in; [|exact I].
        now apply Permutation_sym.
      * rewrite <- pow_add. apply Rle_pow; [lra | lia].
      * rewrite <- pow_add. apply Rle_pow; [lra | lia].
Qed.
End Node.

(* --- the counts --- *)
Lemma largest_least l : (0 <= largest_of l)%Z /\ forall a, In a l -> (a <= largest_of l)%Z.
Proof.
  induction l as [|b l [A B]]; simpl; [split; [lia | intros a []]|]. split; [lia|].
  intros a [<-|H]; [lia | specialize (B a H); lia].
Qed.
Lemma after_total args own alone cellwise here size fan m : after args own alone cellwise here size fan = Some m ->
  (own <= total m)%Z /\ forall a, In a args -> (total a + own <= total m)%Z.
Proof.
  unfold after. destruct (largest_least (map total args)) as [Z0 M].
  assert (M' : forall a, In a args -> (total a <= largest_of (map total args))%Z) by (intros; now apply M, in_map).
  destruct (Z.eqb_spec own 0) as [->|N].
  - intros [= <-]. cbn [total]. split; [exact Z0|]. intros a H. specialize (M' a H). lia.
  - cbv zeta. destruct (Nat.ltb _ _ || _); [discriminate|]. intros [= <-]. cbn [total]. split; [lia|].
    intros a H. specialize (M' a H). lia.
Qed.
Lemma in_dedup l x : In x l -> In x (dedup l).
Proof.
  unfold dedup. induction l as [|a l IH]; simpl; [tauto|]. intros [<-|H].
  - destruct (member a _) eqn:E; [|now left]. unfold member in E. apply existsb_exists in E as [b [B E]].
    apply Nat.eqb_eq in E. now subst.
  - destruct (member a _); [auto | right; auto].
Qed.
Definition total_at (known : list (option count * Z)) (x : nat) : Z :=
  match nth x known (None, 0%Z) with (Some m, _) => total m | (None, _) => 0%Z end.
Lemma counts_next sizes i n ns known known' : counts sizes i (n :: ns) known = Some known' ->
  exists c, counts sizes (S i) ns (known ++ [c]) = Some known' /\
    (is_linear (what n) = true -> exists m, fst c = Some m /\
    (own_roundings (what n) <= total m)%Z /\
    forall x, In x (operands (what n)) -> (total_at known x + own_roundings (what n) <= total m)%Z).
Proof.
  cbn [counts]. destruct (is_linear (what n)); cbn [negb];
    [|intros H; exists (None, 0%Z); split; [exact H | discriminate]].
  set (of_arg := fun x => match nth x known (None, 0%Z) with (Some m, _) => m
    | (None, _) => from_outside x (sizes x) end).
  set (args := map of_arg (rev (dedup (rev (operands (what n))))) ++ _).
  destruct (after args _ _ _ _ _ _) as [m|] eqn:A; [|discriminate]. destruct (Z.leb _ _); [discriminate|]. intros H.
  eexists. split; [exact H|]. intros _. exists m. split; [reflexivity|]. apply after_total in A as [O A].
  split; [exact O|]. intros x X. replace (total_at known x) with (total (of_arg x)).
  - apply A. unfold args. apply in_or_app. left. apply in_map. apply -> in_rev. apply in_dedup. now apply -> in_rev.
  - unfold total_at, of_arg. now destruct (nth x known (None, 0%Z)) as [[m'|] b].
Qed.
Lemma counts_more sizes ns : forall i known known', counts sizes i ns known = Some known' ->
  exists more, known' = known ++ more /\ length more = length ns.
Proof.
  induction ns as [|n ns IH]; intros i known known' H; [injection H as <-; exists []; now rewrite app_nil_r|].
  apply counts_next in H as [c [H _]]. destruct (IH _ _ _ H) as [more [-> L]]. exists (c :: more).
  rewrite <- app_assoc. simpl. now rewrite L.
Qed.

(* A node reads its operands alone. *)
Lemma joined_reads extent axis xs p : forall z x q, joined extent axis xs p z = Cell x q -> In x xs.
Proof.
  induction xs as [|a xs IH]; intros z x q; cbn [joined]; [discriminate|].
  destruct (_ || _); [intros [= <- _]; now left | intros H; right; eauto].
Qed.
Lemma own_reads extent shape op p c x q : In (c, Cell x q) (own_terms extent shape op p) -> In x (operands op).
Proof.
  destruct op as [lo hi|b gr ci co w weights bias y|b gr ci co w weights bias y|w d y|w y|y|bf y|y z|y z|k y|k
    y|y|ls at_x at_w weights y|l]; cbn [own_terms operands]; try (now intros []).
  - intros H. apply in_app_or in H as [H|H]; [|now apply bias_inside in H].
    apply gather_inside in H as [-> _]. now left.
  - intros H. apply in_app_or in H as [H|H]; [|now apply bias_inside in H].
    apply scatter_inside in H as [o [t [[= _ -> _] _]]]. now left.
  - intros H. apply gather_inside in H as [-> _]. now left.
  - intros [[= _ <- _]|[[= _ <- _]|[]]]; [now left | right; now left].
  - intros [[= _ <- _]|[[= _ <- _]|[]]]; [now left | right; now left].
  - intros [[= _ <- _]|[]]. now left.
  - intros [[= _ <- _]|[E|[]]]; [now left | discriminate].
  - intros [[= _ <- _]|[]]. now left.
  - intros H. apply in_map_iff in H as [s [[= _ <- _] _]]. now left.
  - intros [E|[]]. injection E as _ E. destruct l as [y|axes y|st sp y|lows k y|y|axis xs]; cbn [origin_of] in E.
    + injection E as <- _. now left.
    + injection E as <- _. now left.
    + injection E as <- _. now left.
    + destruct (inside _ _); [injection E as <- _; now left | discriminate].
    + injection E as <- _. now left.
    + now apply joined_reads in E.
Qed.
Lemma own_terms_same ext ext' shape op p : (forall x, ext x = ext' x) ->
  own_terms ext shape op p = own_terms ext' shape op p.
Proof.
  intros E. destruct op; cbn [own_terms]; auto. assert (O : origin_of ext shape l p = origin_of ext' shape l p);
    [|now rewrite O].
  destruct l as [x|ax x|st sp x|lo c x|x|ax xs]; cbn [origin_of]; rewrite ?E; auto.
  generalize (nth ax p 0%Z). induction xs as [|x xs IH]; intros z; cbn [joined]; auto. now rewrite E, IH.
Qed.

(* --- whole graphs --- *)
Section Graph.
Variable unit : R.
Hypothesis unit_nonneg : 0 <= unit.
Variables (key_of : nat -> list Z -> key) (manners : nat -> manner).
Definition entry_form (e : entry) (p : list Z) : form := match sum_at e p with Some f => f | None => zero_form end.
Lemma spread_marked m f : spread_out (marked m f) = spread_out f.
Proof. now destruct m. Qed.
Lemma entry_linear (env : nat -> entry) i n cells e : add_node key_of manners env i n = Some (cells, e) ->
  forall f, summed (fun x => extent (env x)) (extents n) (what n) (form_at env) = Some f ->
  forall p, In p (positions (extents n)) -> sum_at e p = Some (marked (mark (manners i)) (f p)).
Proof.
  unfold add_node. intros H f S p P. destruct (negb _); [discriminate|]. rewrite S in H. destruct (celled n).
  - destruct (new_cells _ _ _ _ _ _); [|discriminate]. injection H as _ <-. cbn [sum_at].
    exact (tabled_at (extents n) (fun p => marked (mark (manners i)) (f p)) p P).
  - injection H as _ <-. cbn [sum_at]. exact (tabled_at (extents n) (fun p => marked (mark (manners i)) (f p)) p P).
Qed.
Lemma entry_outside (env : nat -> entry) i n cells e : add_node key_of manners env i n = Some (cells, e) ->
  is_linear (what n) = false -> forall p, sum_at e p = Some (At (key_of i p)).
Proof.
  unfold add_node. intros H L p. destruct (negb _); [discriminate|].
  assert (S : summed (fun x => extent (env x)) (extents n) (what n) (form_at env) = None)
    by (destruct (what n); try discriminate L; reflexivity).
  rewrite S in H. destruct (new_cells _ _ _ _ _ _); [|discriminate]. now injection H as _ <-.
Qed.
Lemma linear_summed (env : nat -> entry) n : is_linear (what n) = true ->
  exists f, summed (fun x => extent (env x)) (extents n) (what n) (form_at env) = Some f.
Proof. intros L. destruct (what n); try discriminate L; cbn [summed]; eauto. Qed.

Lemma node_good (env : nat -> entry) ext (vs : nat -> array value) (T : nat -> nat) i n cells e count :
  add_node key_of manners env i n = Some (cells, e) -> (forall x, ext x = extent (env x)) ->
  (forall x p r, In p (positions (extent (env x))) -> vs x p r -> good unit (T x) (form_at env x p) r) ->
  (is_linear (what n) = true -> (0 <= own_roundings (what n))%Z ->
    (Z.to_nat (own_roundings (what n)) <= count)%nat /\
    forall x, In x (operands (what n)) -> (Z.to_nat (own_roundings (what n)) + T x <= count)%nat) ->
  forall p r, In p (positions (extents n)) -> node_values unit key_of ext i (extents n) (what n) vs p r ->
  good unit count (entry_form e p) r.
Proof.
  intros A X Vs C p r P V. unfold node_values in V. unfold entry_form. destruct (is_linear (what n)) eqn:L.
  - destruct (linear_summed env n L) as [f S]. rewrite (entry_linear env i n cells e A f S p P).
    rewrite (own_terms_same _ _ _ _ _ X) in V. pose proof (spread_own env _ _ _ S p) as E.
    assert (F : fits env n = true).
    { unfold add_node in A. destruct (fits env n); [reflexivity | discriminate]. }
    eapply (good_node unit unit_nonneg _ _ vs env _ (fold_right max 0%nat (map T (operands (what n)))));
      [exact V | rewrite spread_marked; exact E | |].
    + intros c o r' I O. destruct o as [x q|k]; cbn [origin_value form_of] in *.
      * apply (good_more unit unit_nonneg (T x)).
        -- pose proof (own_reads _ _ _ _ _ _ _ I) as R. clear - R. induction (operands (what n)) as [|y l IH]; simpl;
             [destruct R|]. destruct R as [->|R]; [lia | specialize (IH R); lia].
        -- apply Vs; [|exact O]. eapply own_inside; eauto.
      * subst r'. unfold good. cbn [spread_out]. destruct (Z.eqb (mantissa k) 0); [reflexivity|].
        split; [apply Permutation_refl|]. split.
        -- constructor; [|constructor]. simpl. split; [reflexivity|]. split; [apply wide_bits | reflexivity].
        -- pose proof least_normal_pos. repeat split; simpl; apply pow_R1_Rle; lra.
    + intros O. destruct (C eq_refl O) as [C0 Cx]. revert Cx. generalize (operands (what n)) as l.
      induction l as [|y l IH]; intros Cx; simpl; [lia|].
      pose proof (Cx y (or_introl eq_refl)). specialize (IH (fun x H => Cx x (or_intror H))). lia.
  - destruct V as [v ->]. rewrite (entry_outside env i n cells e A L p). unfold good. cbn [spread_out].
    split; [apply Permutation_refl|]. split.
    + constructor; [|constructor]. simpl. split; [reflexivity|]. split; [lra | eauto].
    + pose proof least_normal_pos. repeat split; simpl; apply pow_R1_Rle; lra.
Qed.

Definition states (env : list entry) (vals : list (list Z * array value)) (known : list (option count * Z)) : Prop :=
  forall x, extent (reader env x) = fst (nth x vals no_value) /\
    forall p r, In p (positions (extent (reader env x))) -> snd (nth x vals no_value) p r ->
      good unit (Z.to_nat (total_at known x)) (form_at (reader env) x p) r.
Lemma nth_last {A} (l : list A) a d : nth (length l) (l ++ [a]) d = a.
Proof. rewrite app_nth2 by lia. now rewrite Nat.sub_diag. Qed.
Lemma graph_good sizes nodes : forall env vals known part env' known',
  compile key_of manners nodes env = Some (part, env') -> counts sizes (length env) nodes known = Some known' ->
  length vals = length env -> length known = length env -> states env vals known ->
  states env' (by_node unit key_of nodes vals) known'.
Proof.
  induction nodes as [|n nodes IH]; intros env vals known part env' known' C K Lv Lk St.
  - injection C as _ <-. injection K as <-. exact St.
  - cbn [compile] in C. destruct (add_node _ _ _ _ _) as [[cells e]|] eqn:A; [|discriminate].
    destruct (compile _ _ nodes _) as [[rest env2]|] eqn:C2; [|discriminate]. injection C as _ <-.
    apply counts_next in K as [c [K Km]]. cbn [by_node].
    eapply (IH (env ++ [e])); [exact C2 | rewrite app_length, Nat.add_1_r; exact K | rewrite !app_length; simpl; lia
      | rewrite !app_length; simpl; lia |].
    intros x. destruct (lt_eq_lt_dec x (length env)) as [[L|E]|L].
    + unfold reader, form_at, total_at. rewrite !app_nth1 by lia. exact (St x).
    + subst x. assert (Rd : reader (env ++ [e]) (length env) = e) by apply nth_last. unfold form_at. rewrite Rd.
      pose proof (extent_of_node key_of manners _ _ _ _ _ A) as X. rewrite <- Lv, nth_last. cbn [fst snd].
      split; [exact X|]. intros p r P V. rewrite X in P. rewrite Lv in V.
      refine (node_good (reader env) _ _ (fun x => Z.to_nat (total_at known x)) (length env) n cells e _ A _ _ _
        p r P V).
      * intros x. symmetry. apply St.
      * intros x q r' Q W. apply (proj2 (St x) q r' Q W).
      * intros Lin O. destruct (Km Lin) as [m [Em [Om Xm]]].
        assert (T : total_at (known ++ [c]) (length vals) = total m).
        { unfold total_at. replace (length vals) with (length known) by lia. rewrite nth_last.
          destruct c as [oc b]. cbn [fst] in Em. now subst oc. }
        rewrite T. split; [lia|]. intros x I. specialize (Xm x I). lia.
    + unfold reader, form_at. rewrite !nth_overflow by (rewrite app_length; simpl; lia). split; [reflexivity|].
      intros p r _ V. simpl in V. subst r. reflexivity.
Qed.
Lemma compile_more nodes : forall env part env', compile key_of manners nodes env = Some (part, env') ->
  exists more, env' = env ++ more.
Proof.
  induction nodes as [|n nodes IH]; intros env part env' C; cbn [compile] in C;
    [injection C as _ <-; exists []; now rewrite app_nil_r|].
  destruct (add_node _ _ _ _ _) as [[cells e]|]; [|discriminate].
  destruct (compile _ _ nodes _) as [[rest env2]|] eqn:K; [|discriminate]. injection C as _ <-.
  destruct (IH _ _ _ K) as [more ->]. exists (e :: more). now rewrite <- app_assoc.
Qed.
(* The cell of a linear node. *)
Definition sum_cell (i : nat) (f : form) : sums := let ps := products_of f in
  Sums (map fst ps) zero (rounds (manners i)) (power (spread_of ps)) (single (manners i)).
Lemma cell_made nodes : forall env part env' j n p, compile key_of manners nodes env = Some (part, env') ->
  nth_error nodes j = Some n -> is_linear (what n) = true -> celled n = true -> In p (positions (extents n)) ->
  let i := (length env + j)%nat in extent (reader env' i) = extents n /\
  In (key_of i p, Sum (sum_cell i (form_at (reader env') i p))) part.
Proof.
  induction nodes as [|n nodes IH]; intros env part env' [|j] m p C N L Ce P; try discriminate; cbn [compile] in C;
    destruct (add_node _ _ _ _ _) as [[cells e]|] eqn:A; try discriminate;
    destruct (compile _ _ nodes _) as [[rest env2]|] eqn:K; try discriminate; injection C as <- <-.
  - injection N as ->. rewrite Nat.add_0_r. destruct (compile_more _ _ _ _ K) as [more ->].
    assert (Rd : reader ((env ++ [e]) ++ more) (length env) = e).
    { unfold reader. rewrite app_nth1 by (rewrite app_length; simpl; lia). apply nth_last. }
    cbv zeta. unfold form_at. rewrite Rd. split; [exact (extent_of_node key_of manners _ _ _ _ _ A)|].
    apply in_or_app. left. destruct (linear_summed (reader env) m L) as [f S].
    rewrite (entry_linear _ _ _ _ _ A f S p P). unfold add_node in A. destruct (negb _); [discriminate|].
    rewrite S, Ce in A. destruct (new_cells _ _ _ _ _ _) as [cs|] eqn:Q; [|discriminate]. injection A as <- _.
    unfold new_cells in Q.
    set (sm := Some (tabled (extents m) (fun p => marked (mark (manners (length env))) (f p)))) in Q.
    destruct (cells_in (fun p => new_cell manners (reader env) (length env) m sm p) _ (key_of (length env)) _ Q p P)
      as [c [M I]].
    assert (E : c = Sum (sum_cell (length env) (marked (mark (manners (length env))) (f p)))); [|now rewrite <- E].
    unfold new_cell, sm in M. destruct (what m); try discriminate L;
      rewrite (tabled_at (extents m) (fun p => marked (mark (manners (length env))) (f p)) p P) in M;
      injection M as <-; reflexivity.
  - destruct (IH _ _ _ j m p K N L Ce P) as [X I]. rewrite app_length, <- Nat.add_assoc in X, I. simpl in X, I.
    cbv zeta. split; [exact X|]. apply in_or_app. now right.
Qed.

(* Products that are computed once: every copy of a cell reads one value there. *)
Fixpoint reads_shared (read : nat -> R) (n : nat) (ps : list term) (ms : list addend) : Prop :=
  match ps, ms with
  | p :: ps, m :: ms => (shared p = true -> forall j v, vars m = [(j, v)] -> v = read n) /\
      reads_shared read (S n) ps ms
  | _, _ => True
  end.
Lemma spread_most ps p : In p ps -> (snd p - bits_below (weight (fst p)) <= spread_of ps)%Z /\ (0 <= spread_of ps)%Z.
Proof.
  unfold spread_of. assert (G : forall l a, (a <= fold_left (fun m (p : term * Z) =>
    Z.max m (snd p - bits_below (weight (fst p)))) l a)%Z /\ forall p, In p l ->
    (snd p - bits_below (weight (fst p)) <= fold_left (fun m (p : term * Z) =>
    Z.max m (snd p - bits_below (weight (fst p)))) l a)%Z).
  { induction l as [|q l IH]; intros a; simpl; [split; [lia | tauto]|].
    destruct (IH (Z.max a (snd q - bits_below (weight (fst q))))) as [A B]. split; [lia|].
    intros p' [<-|I]; [lia | auto]. }
  intros I. destruct (G ps 0%Z) as [A B]. auto.
Qed.
Lemma good_formula i f k t ms fetched : good unit (Z.to_nat (rounds (manners i))) f (Some (t, ms)) ->
  reads_shared (fetched k) 0 (terms (sum_cell i f)) ms -> formula_of unit fetched k (sum_cell i f) t.
Proof.
  intros [P [F [K [U L]]]] Sh. unfold formula_of. cbn [sum_cell roundings terms]. split; [exact K|]. split; [exact U|].
  split.
  { eapply Rle_trans; [exact L|]. apply Rle_pow; [pose proof least_normal_pos; lra|]. unfold losses_allowed.
    cbn [sum_cell roundings]. lia. }
  exists ms. split; [exact P|]. cbn [sum_cell terms] in Sh.
  assert (Sp : map seen_as (products_of f) = spread_out f).
  { rewrite products_seen. destruct (spread_out f); [|reflexivity]. inversion F; subst.
    destruct (addends_some t) as [m [l E]]. rewrite E in P. apply Permutation_sym, Permutation_nil in P. discriminate. }
  rewrite <- Sp in F. pose proof (fun p I => proj1 (spread_most (products_of f) p I)) as Mo. revert Sh.
  unfold sum_cell. cbv zeta. set (sp := spread_of (products_of f)) in *. clearbody sp. set (cell := Sums _ _ _ _ _).
  assert (Blur : blur cell = zero) by reflexivity. assert (Wide : spread cell = power sp) by reflexivity.
  clearbody cell. clear Sp P. generalize 0%nat.
  revert ms F. induction (products_of f) as [|q qs IH]; intros ms F c Sh; simpl in F;
    inversion F as [|x m xs ms' Fm Fs]; subst; cbn [map all_match]; [exact Logic.I|].
  cbn [map reads_shared] in Sh. destruct Sh as [S1 S2]. split; [|apply IH; auto; intros; apply Mo; now right].
  destruct Fm as [C [[_ W] V]]. unfold matches. rewrite Blur, Wide. split; [|split].
  - rewrite C, Rminus_diag_eq, Rabs_R0, real_zero by reflexivity. apply Rle_refl.
  - rewrite real_power. pose proof (Mo q (or_introl eq_refl)) as B. pose proof (bits_wide (weight (fst q))) as B'.
    eapply Rle_trans; [exact W|]. apply Rle_trans with (bpow radix2 (sp + bits_below (weight (fst q)))).
    + apply bpow_le. lia.
    + rewrite bpow_plus. apply Rmult_le_compat_l; [apply bpow_ge_0 | exact B'].
  - destruct (source (fst q)) as [j|]; [|exact V]. destruct V as [v V]. exists v. split; [exact V|].
    intros H. exact (S1 H j v V).
Qed.
Lemma nothing_formula i f k fetched : spread_out f = [] -> formula_of unit fetched k (sum_cell i f) (Constant 0).
Proof.
  intros E. pose proof (products_seen f) as Sp. rewrite E in Sp.
  destruct (products_of f) as [|q [|q' qs]] eqn:Q; try discriminate. injection Sp as W S B.
  pose proof least_normal_pos. unfold formula_of. repeat split; try (apply pow_R1_Rle; lra).
  exists (addends (Constant 0)). split; [apply Permutation_refl|]. unfold sum_cell. cbv zeta. rewrite Q.
  cbn [terms map addends all_match]. split; [|exact Logic.I]. unfold matches. cbn [blur spread coef wide vars].
  rewrite W, S, real_zero, real_power, Rminus_0_r, Rabs_R0. split; [apply Rle_refl|]. split; [|reflexivity].
  destruct (spread_most [q] q (or_introl eq_refl)) as [_ Z0]. rewrite Rmax_left by lra.
  assert (bpow radix2 0 <= bpow radix2 (spread_of [q])) by (apply bpow_le; exact Z0). simpl in *. lra.
Qed.
End Graph.

(* t is a formula of cell k, computed node by node; what is shared has been read as `fetched` says. *)
Definition cell_by_node unit key_of nodes (fetched : key -> nat -> R) (k : key) (s : sums) (t : formula) : Prop :=
  exists i n p r, nth_error nodes i = Some n /\ is_linear (what n) = true /\ celled n = true /\
    In p (positions (extents n)) /\ k = key_of i p /\ snd (nth i (by_node unit key_of nodes []) no_value) p r /\
    match r with Some (t', ms) => t = t' /\ reads_shared (fetched k) 0 (terms s) ms | None => t = Constant 0 end.
(* Codes of binary32 operations that are such formulas. *)
Definition code_by_node unit key_of nodes (drawn : key -> nat -> RoundingBinary.float32) (k : key) (s : sums)
  (c : code) : Prop :=
  sane c /\ cell_by_node unit key_of nodes (fun k n => B2R (drawn k n)) k s (written unit c).

Lemma manners_counted nodes outs manners : manners_of nodes outs = Some manners ->
  exists sizes known, counts sizes 0 nodes [] = Some known /\
    forall i, (i < length nodes)%nat -> rounds (manners i) = total_at known i.
Proof.
  unfold manners_of. cbv zeta. destruct (counts _ _ _ _) as [known|] eqn:K; [|discriminate].
  intros H. injection H as <-. eexists _, known. split; [exact K|]. intros i L.
  match goal with |- rounds (nth i (map ?f ?l) ?d) = _ =>
    pose proof (map_nth f l (0%nat, Node [] (Negated 0) false) i) as M;
    rewrite (nth_indep _ d (f (0%nat, Node [] (Negated 0) false)))
      by (rewrite map_length, combine_length, seq_length; lia); rewrite M end.
  rewrite combine_nth by apply seq_length. rewrite seq_nth by exact L. cbn [rounds Nat.add]. reflexivity.
Qed.

(* The compiled R is enough: whatever computes a cell node by node is of the class that is stated for it. *)
Theorem by_node_formula unit key_of nodes outs manners net env fetched k s t : 0 <= unit ->
  manners_of nodes outs = Some manners -> compile key_of manners nodes [] = Some (net, env) ->
  (forall k x y, In (k, x) net -> In (k, y) net -> x = y) -> In (k, Sum s) net ->
  cell_by_node unit key_of nodes fetched k s t -> formula_of unit fetched k s t.
Proof.
  intros U M C Un K [i [n [p [r [N [L [Ce [P [-> [V R]]]]]]]]]].
  destruct (manners_counted _ _ _ M) as [sizes [known [Kn Rs]]].
  assert (St : states unit env (by_node unit key_of nodes []) known).
  { apply (graph_good unit U key_of manners sizes nodes [] [] [] net env known C Kn eq_refl eq_refl).
    intros x. unfold reader, form_at. destruct x; (split; [reflexivity|]); intros q r' _ W; simpl in W; subst r';
      reflexivity. }
  destruct (cell_made key_of manners nodes [] net env i n p C N L Ce P) as [X I]. cbn [length Nat.add] in X, I.
  pose proof (Un _ _ _ K I) as E. injection E as E. destruct (St i) as [_ G].
  rewrite X in G. specialize (G p r P V).
  assert (Li : (i < length nodes)%nat) by (apply nth_error_Some; congruence). rewrite <- (Rs i Li) in G.
  rewrite E. destruct r as [[t' ms]|].
  - destruct R as [-> Sh]. eapply good_formula; [exact G | now rewrite <- E].
  - subst t. apply nothing_formula; exact G || exact U.
Qed.

Lemma placed_value (e : entry) (y : key -> R) r r' : placed e r = Some r' ->
  row_value y (coefs r') = row_sum (fun q => match cell_at e q with Some k => y k | None => 0 end) r /\
  limit r' = bound r.
Proof.
  unfold placed. destruct (all_some _) as [cs|] eqn:S; [|discriminate]. intros H. injection H as <-. cbn [coefs limit].
  split; [|reflexivity]. apply all_some_map in S. unfold row_value, row_sum. revert cs S.
  induction (coefs_at r) as [|[q c] ps IH]; intros [|[k c'] cs]; cbn [map fst snd]; try discriminate; [reflexivity|].
  intros S. injection S as S1 S2. unfold cell_of in S1. destruct (inside _ q); [|discriminate].
  destruct (cell_at e q) as [k2|] eqn:Ck; [|discriminate]. injection S1 as -> ->.
  cbn [CheckTrees.sum_over fold_right fst snd]. rewrite Ck. f_equal. now apply IH.
Qed.
(* So what is accepted of a graph holds of every binary32 execution of it, node by node: no position of the output has
   numbers in an excluded set. *)
Theorem graph_binary32 key_of nodes out unit groups manners net env held drawn (y : key -> RoundingBinary.float32) :
  check_graph key_of nodes out unit groups = Some true -> bpow radix2 (-24) <= real unit ->
  manners_of nodes [out] = Some manners -> compile key_of manners nodes [] = Some (net, env) ->
  execution32 net (real unit) held drawn (code_by_node (real unit) key_of nodes drawn) ->
  (forall q k, In q (positions (extent (reader env out))) -> cell_at (reader env out) q = Some k ->
    possible32 net (real unit) held (code_by_node (real unit) key_of nodes drawn) k (y k)) ->
  forall alts p rows, In (alts, p) groups -> In rows alts ->
    ~ in_rows (fun q => match cell_at (reader env out) q with Some k => B2R (y k) | None => 0 end) rows.
Proof.
  unfold check_graph. intros C U M K X Y alts p rows G R. rewrite M, K in C.
  destruct (all_some _) as [placed_groups|] eqn:P; [|discriminate]. injection C as C.
  assert (O : ordered net Empty = true).
  { unfold check in C. apply andb_prop in C as [O _]. now apply andb_prop in O as [O _]. }
  pose proof (ordered_unique net unit (fun _ => 0) (fun _ _ => 0) net Empty O) as Un.
  assert (U0 : 0 <= real unit) by (pose proof (bpow_gt_0 radix2 (-24)); lra).
  apply all_some_map in P. assert (I : In (placed_group (reader env out) (alts, p)) (map Some placed_groups)) by
    (rewrite <- P; now apply in_map).
  apply in_map_iff in I. destruct I as [[alts' p'] [Q I]]. unfold placed_group in Q. cbn [fst snd] in Q.
  destruct (all_some _) as [as2|] eqn:A; [|discriminate]. injection Q as -> ->. apply all_some_map in A.
  assert (J : In (all_some (map (placed (reader env out)) rows)) (map Some as2)) by
    (rewrite <- A; now apply (in_map (fun rows => all_some (map (placed (reader env out)) rows)))).
  apply in_map_iff in J. destruct J as [rows' [J L]]. symmetry in J. apply all_some_map in J.
  intros H. refine (proj1 (binary32_network net unit placed_groups held drawn _ C U _ X as2 p rows' y I L _) _).
  - intros k s c Ks [S B]. split; [exact S|].
    exact (by_node_formula _ key_of nodes [out] manners net env _ k s _ U0 M K Un Ks B).
  - intros k H3. unfold read_by in H3. apply in_flat_map in H3 as [r' [Rr H3]].
    assert (W : In (Some r') (map (placed (reader env out)) rows)) by (rewrite J; now apply in_map).
    apply in_map_iff in W as [r [W _]]. unfold placed in W. destruct (all_some _) as [cs|] eqn:S; [|discriminate].
    injection W as <-. cbn [coefs] in H3. apply all_some_map in S. apply in_map_iff in H3 as [[k' c'] [Ek H3]].
    cbn [fst] in Ek. subst k'. apply (in_map Some) in H3. rewrite <- S in H3.
    apply in_map_iff in H3 as [[q c] [E _]]. cbn [fst snd] in E. unfold cell_of in E.
    destruct (inside _ q) eqn:In_; [|discriminate].
    destruct (cell_at (reader env out) q) as [k2|] eqn:Ck; [|discriminate]. injection E as -> _.
    exact (Y q k (inside_in _ _ In_) Ck).
  - intros r' Rr. assert (W : In (Some r') (map (placed (reader env out)) rows)) by (rewrite J; now apply in_map).
    apply in_map_iff in W as [r [W In_]]. destruct (placed_value _ (fun k => B2R (y k)) _ _ W) as [-> ->]. now apply H.
Qed.

(* --- the counts are large enough for sums in any order --- *)
(* Every list of terms has a sum, from left to right, one rounding per product and addition. *)
Lemma adds_up_some unit l : 0 <= unit -> l <> [] -> exists n t, adds_up unit n l t /\ (n <= length l)%nat.
Proof.
  intros U. induction l as [|[c t] l IH]; intros N; [now elim N|]. destruct l as [|ct l].
  - exists 1%nat, (Rounded unit (Multiplied (Constant (real c)) t)). split; [|simpl; lia].
    eapply adds_product; [apply as_is | apply as_is | apply product_left | lra].
  - destruct IH as [n [f [A L]]]; [discriminate|]. eexists (S n), _. split; [|simpl in *; lia].
    eapply adds_fused; [exact A | apply as_is | apply as_is | apply as_is | apply product_left
      | split; [exact U | lra]].
Qed.
(* Of values and their opposites: the additions alone. *)
Lemma adds_up_signs unit l : 0 <= unit -> l <> [] -> (forall ct, In ct l -> real (fst ct) = 1 \/ real (fst ct) = -1) ->
  exists n t, adds_up unit n l t /\ (S n <= length l)%nat.
Proof.
  intros U. assert (One : forall c t, real c = 1 \/ real c = -1 -> exists f, adds_up unit 0 [(c, t)] f).
  { intros c t [C|C]; eexists; [now apply adds_value | now apply adds_negated]. }
  induction l as [|[c t] l IH]; intros N S; [now elim N|].
  destruct (One c t (S (c, t) (or_introl eq_refl))) as [a A]. destruct l as [|ct l].
  - exists 0%nat, a. split; [exact A | simpl; lia].
  - destruct IH as [n [b [B L]]]; [discriminate | intros; apply S; now right|].
    exists (Datatypes.S (max 0 n)), (Rounded unit (CheckTrees.Added a b)). split; [|simpl in *; lia].
    apply (adds_sum unit 0 n [(c, t)] (ct :: l) a b a b unit A B (as_is a) (as_is b)). lra.
Qed.
(* So a node has a value by `node_value`, if those that it reads have, and these terms are not too many. *)
Definition enough (own : Z) (ts : list (number * origin)) : Prop :=
  (Z.of_nat (length ts) <= own)%Z \/
  ((forall ct, In ct ts -> real (fst ct) = 1 \/ real (fst ct) = -1) /\ (Z.of_nat (length ts) <= own + 1)%Z).
Theorem enough_has_value unit own ts env : 0 <= unit -> enough own ts ->
  (forall c o, In (c, o) ts -> exists r, origin_value env o r) -> exists r, node_value unit own ts env r.
Proof.
  intros U E V.
  assert (G : exists got, Forall2 (fun co cr => fst cr = fst co /\ origin_value env (snd co) (snd cr)) ts got).
  { clear E. induction ts as [|[c o] ts IH]; [exists []; constructor|].
    destruct (V c o (or_introl eq_refl)) as [r R]. destruct IH as [got G]; [intros; eapply V; right; eauto|].
    exists ((c, r) :: got). constructor; [split; [reflexivity | exact R] | exact G]. }
  destruct G as [got G]. unfold node_value. destruct (live got) as [|it its] eqn:L.
  - exists None, got. split; [exact G|]. now rewrite L.
  - assert (Len : (length (live got) <= length ts)%nat /\ forall i, In i (live got) -> exists o, In (fst i, o) ts).
    { clear - G. induction G as [|[c o] [c' r] ts got [E _] G [A B]]; [split; [simpl; lia | intros i []]|].
      cbn [fst] in E. subst c'. destruct r as [r|]; cbn [live length].
      - split; [lia|]. intros i [<-|I]; [exists o; now left | destruct (B i I) as [o' O]; exists o'; now right].
      - split; [lia|]. intros i I. destruct (B i I) as [o' O]. exists o'. now right. }
    destruct Len as [Len Own]. rewrite L in Len, Own. set (l := map (fun it => (fst it, fst (snd it))) (it :: its)).
    assert (N : l <> []) by discriminate. assert (Ll : length l = length (it :: its)) by apply map_length.
    destruct E as [E|[S E]].
    + destruct (adds_up_some unit l U N) as [n [t [A B]]].
      eexists (Some (t, _)), got. split; [exact G|]. rewrite L. exists (it :: its), n, t.
      split; [apply Permutation_refl|]. split; [exact A|]. split; [lia | reflexivity].
    + destruct (adds_up_signs unit l U N) as [n [t [A B]]].
      { intros ct I. apply in_map_iff in I as [i [<- I]]. destruct (Own i I) as [o O]. exact (S _ O). }
      eexists (Some (t, _)), got. split; [exact G|]. rewrite L. exists (it :: its), n, t.
      split; [apply Permutation_refl|]. split; [exact A|]. split; [lia | reflexivity].
Qed.

(* Taps of a cell are at most so many. *)
Lemma flat_map_twice {A B C} (f : B -> list C) (g : A -> list B) l :
  flat_map f (flat_map g l) = flat_map (fun a => flat_map f (g a)) l.
Proof. induction l as [|a l IH]; simpl; [reflexivity|]. now rewrite flat_map_app, IH. Qed.
Lemma flat_map_nothing {A B} (l : list A) : flat_map (fun _ => @nil B) l = [].
Proof. induction l as [|a l IH]; [reflexivity | exact IH]. Qed.
Lemma flat_map_at_most {A B} (f : A -> list B) (live : A -> bool) m l :
  (forall a, In a l -> live a = false -> f a = []) -> (forall a, In a l -> (length (f a) <= m)%nat) ->
  (length (flat_map f l) <= length (filter live l) * m)%nat.
Proof.
  induction l as [|a l IH]; intros D L; simpl; [lia|]. rewrite app_length.
  specialize (IH (fun b H => D b (or_intror H)) (fun b H => L b (or_intror H))).
  destruct (live a) eqn:E; simpl; [specialize (L a (or_introl eq_refl)); lia|].
  rewrite (D a (or_introl eq_refl) E). simpl. exact IH.
Qed.
Lemma range_length n : length (Window.range n) = Z.to_nat n.
Proof. unfold Window.range. now rewrite map_length, seq_length. Qed.
Lemma filter_at_most {A} (f : A -> bool) l : (length (filter f l) <= length l)%nat.
Proof. induction l as [|a l IH]; simpl; [lia|]. destruct (f a); simpl; lia. Qed.
Lemma taps_at_most a o : In o (Window.range (Window.out a)) -> (length (filter (fun t => match Window.reads a o t with
  Some _ => true | None => false end) (Window.range (Window.kernel a))) <= Z.to_nat (most_taps a))%nat.
Proof.
  intros O. destruct a as [n k s e lo hi m|n m|g n m].
  - eapply Nat.le_trans; [apply filter_at_most|]. now rewrite range_length.
  - cbn [Window.kernel most_taps Window.out] in *. set (c := (Window.stop n m o - Window.start n m o)%Z).
    assert (Mo : (c <= largest_of (map (fun o => Window.stop n m o - Window.start n m o) (Window.range m)))%Z).
    { apply (proj2 (largest_least _)). exact (in_map (fun o => (Window.stop n m o - Window.start n m o)%Z) _ _ O). }
    apply Nat.le_trans with (length (Window.range c)); [|rewrite range_length; lia].
    apply NoDup_incl_length.
    + apply NoDup_filter. unfold Window.range. apply FinFun.Injective_map_NoDup; [|apply seq_NoDup].
      intros x y. lia.
    + intros t I. apply filter_In in I as [T R]. apply Window.in_range in T. apply Window.in_range.
      unfold Window.reads, Window.place in R. destruct (Z.ltb_spec (Window.start n m o + t) (Window.stop n m o));
        [unfold c; lia | discriminate].
  - eapply Nat.le_trans; [apply filter_at_most|]. now rewrite range_length.
Qed.
Lemma gather_at_most {B} w : forall o (f : list Z -> list Z -> B), In o (Window.outs w) ->
  (length (flat_map (fun t => match Window.reads_all w o t with Some i => [f t i] | None => [] end) (Window.taps w)) <=
   fold_right (fun a n => Z.to_nat (most_taps a) * n) 1 w)%nat.
Proof.
  induction w as [|a w IH]; intros o f O.
  - unfold Window.taps, Window.outs in *. simpl in *. destruct O as [<-|[]]. simpl. lia.
  - unfold Window.outs, Window.taps in *. cbn [map Window.positions fold_right] in *.
    apply in_flat_map in O as [o1 [O1 O]]. apply in_map_iff in O as [os [<- Os]]. rewrite flat_map_twice.
    eapply Nat.le_trans; [|apply Nat.mul_le_mono_r, (taps_at_most a o1 O1)].
    apply (flat_map_at_most _ (fun t => match Window.reads a o1 t with Some _ => true | None => false end)).
    + intros t _ D. rewrite flat_map_concat_map, map_map, <- flat_map_concat_map. cbn [Window.reads_all].
      destruct (Window.reads a o1 t); [discriminate|].
      apply flat_map_nothing.
    + intros t _. rewrite flat_map_concat_map, map_map, <- flat_map_concat_map. cbn [Window.reads_all].
      destruct (Window.reads a o1 t) as [i|]; [|rewrite flat_map_nothing; simpl; lia].
      eapply Nat.le_trans; [|apply (IH os (fun ts is => f (t :: ts) (i :: is)) Os)]. apply Nat.eq_le_incl, f_equal.
      apply flat_map_ext. intros ts. now destruct (Window.reads_all w os ts).
Qed.

(* Of a transposed window: outputs and taps that read one cell are at most so many. *)
Lemma nodup_app {A} (l m : list A) : NoDup l -> NoDup m -> (forall a, In a l -> ~ In a m) -> NoDup (l ++ m).
Proof.
  induction 1 as [|a l N D IH]; intros M Dis; simpl; [exact M|]. constructor.
  - intros I. apply in_app_or in I as [I|I]; [now apply N | apply (Dis a); [now left | exact I]].
  - apply IH; [exact M|]. intros b B. apply Dis. now right.
Qed.
Lemma range_nodup n : NoDup (Window.range n).
Proof. unfold Window.range. apply FinFun.Injective_map_NoDup; [|apply seq_NoDup]. intros x y. lia. Qed.
Definition joins (a : Window.axis) (i o t : Z) : bool :=
  match Window.reads a o t with Some j => Z.eqb j i | None => false end.
Definition readers_of (a : Window.axis) (i : Z) : list Z :=
  flat_map (fun o => filter (joins a i o) (Window.range (Window.kernel a))) (Window.range (Window.out a)).
Definition most_joined (a : Window.axis) : Z :=
  match a with Window.Grouped g _ m => (m / g)%Z | _ => Window.kernel a end.
Definition spaced (a : Window.axis) : Prop :=
  match a with
  | Window.Strided _ _ s _ _ _ _ => s <> 0%Z
  | Window.Grouped g _ m => (0 < m / g)%Z
  | Window.Adaptive _ _ => False
  end.
Lemma strided_joined n k s e lo hi m i : s <> 0%Z ->
  (length (readers_of (Window.Strided n k s e lo hi m) i) <= Z.to_nat k)%nat.
Proof.
  intros S. unfold readers_of. set (a := Window.Strided n k s e lo hi m). cbn [Window.kernel Window.out a].
  rewrite <- (range_length k). apply NoDup_incl_length.
  - pose proof (range_nodup m) as D. induction D as [|o os N D IH]; cbn [flat_map]; [constructor|].
    apply nodup_app; [apply NoDup_filter, range_nodup | exact IH |]. intros t T I. apply filter_In in T as [_ T].
    apply in_flat_map in I as [o' [O I]]. apply filter_In in I as [_ I].
    unfold joins, Window.reads, Window.place, a in *.
    destruct (Window.within 0 _ (s * o + e * t - lo)); [|discriminate].
    destruct (Window.within 0 _ (s * o' + e * t - lo)); [|discriminate]. apply Z.eqb_eq in T, I.
    assert (o = o') by nia. now subst o'.
  - intros t I. apply in_flat_map in I as [o [_ I]]. now apply filter_In in I as [I _].
Qed.
Lemma grouped_joined g n m i : (0 < m / g)%Z ->
  (length (readers_of (Window.Grouped g n m) i) <= Z.to_nat (m / g))%nat.
Proof.
  intros G. unfold readers_of. set (a := Window.Grouped g n m). cbn [Window.kernel Window.out a].
  assert (At : forall o t, In t (Window.range (n / g)) -> joins a i o t = true ->
    (0 < n / g /\ o / (m / g) = i / (n / g) /\ t = i - i / (n / g) * (n / g))%Z).
  { intros o t T J. apply Window.in_range in T. unfold joins, Window.reads, Window.place, a in J.
    destruct (Window.within _ _ _); [|discriminate]. apply Z.eqb_eq in J.
    assert (Q : (o / (m / g) = i / (n / g))%Z) by (apply (Z.div_unique i (n / g) _ t); [left; lia | lia]).
    repeat split; [lia | exact Q | rewrite <- Q; lia]. }
  set (q := (i / (n / g))%Z) in *. set (same := fun o => Z.eqb (o / (m / g)) q).
  apply Nat.le_trans with (length (filter same (Window.range m)) * 1)%nat.
  - apply flat_map_at_most.
    + intros o _ S. destruct (filter (joins a i o) (Window.range (n / g))) as [|t ts] eqn:F; [reflexivity|].
      assert (I : In t (filter (joins a i o) (Window.range (n / g)))) by (rewrite F; now left).
      apply filter_In in I as [T J]. destruct (At o t T J) as [_ [Q _]]. unfold same in S. rewrite Q in S.
      now rewrite Z.eqb_refl in S.
    + intros o _. change 1%nat with (length [(i - q * (n / g))%Z]). apply NoDup_incl_length;
        [apply NoDup_filter, range_nodup|].
      intros t I. apply filter_In in I as [T J]. destruct (At o t T J) as [_ [_ E]]. left. now rewrite E.
  - rewrite Nat.mul_1_r, <- (range_length (m / g)).
    rewrite <- (map_length (fun r => q * (m / g) + r)%Z (Window.range (m / g))).
    apply NoDup_incl_length; [apply NoDup_filter, range_nodup|]. intros o I. apply filter_In in I as [_ E].
    apply Z.eqb_eq in E. apply in_map_iff. exists (o - q * (m / g))%Z. split; [lia|]. apply Window.in_range.
    pose proof (Z.div_mod o (m / g)). pose proof (Z.mod_pos_bound o (m / g)). rewrite E in *. lia.
Qed.
Lemma joined_at_most a i : spaced a -> (length (readers_of a i) <= Z.to_nat (most_joined a))%nat.
Proof.
  destruct a as [n k s e lo hi m|n m|g n m]; cbn [spaced most_joined Window.kernel]; intros S;
    [now apply strided_joined | destruct S | now apply grouped_joined].
Qed.
Lemma scatter_at_most w : Forall spaced w -> forall i f,
  (length (scatter_terms w i f) <= fold_right (fun a n => Z.to_nat (most_joined a) * n) 1 w)%nat.
Proof.
  induction 1 as [|a w S F IH]; intros [|i is] f; cbn [scatter_terms fold_right]; try (simpl; lia).
  eapply Nat.le_trans; [|apply Nat.mul_le_mono_r, (joined_at_most a i S)]. unfold readers_of.
  induction (Window.range (Window.out a)) as [|o os IHo]; cbn [flat_map]; [simpl; lia|].
  rewrite !app_length, Nat.mul_add_distr_r. apply Nat.add_le_mono; [|exact IHo].
  apply flat_map_at_most.
  - intros t _ J. unfold joins in J. destruct (Window.reads a o t) as [j|]; [now rewrite J | reflexivity].
  - intros t _. destruct (Window.reads a o t) as [j|]; [destruct (Z.eqb j i)|]; [apply IH | simpl; lia | simpl; lia].
Qed.

Lemma product_nat (f : Window.axis -> Z) w : Forall (fun a => (0 <= f a)%Z) w ->
  Z.of_nat (fold_right (fun a n => (Z.to_nat (f a) * n)%nat) 1%nat w) = product (map f w).
Proof.
  unfold product. induction 1 as [|a w H F IH]; cbn [fold_right map]; [reflexivity|].
  rewrite Nat2Z.inj_mul, IH, Z2Nat.id by exact H. reflexivity.
Qed.
Lemma positions_length s : Forall (fun n => (0 <= n)%Z) s -> Z.of_nat (length (positions s)) = product s.
Proof.
  unfold positions, product. induction 1 as [|n s H F IH]; cbn [Window.positions fold_right]; [reflexivity|].
  assert (E : forall l m, length (flat_map (fun i : Z => map (cons i) m) l) = (length l * length m)%nat).
  { induction l as [|i l IHl]; intros m; cbn [flat_map length]; [reflexivity|].
    rewrite app_length, map_length, IHl. reflexivity. }
  rewrite E, Nat2Z.inj_mul, IH, range_length, Z2Nat.id by exact H. reflexivity.
Qed.
(* Sizes of which this holds. *)
Definition counted (op : operator) : Prop :=
  match op with
  | Conv _ g ci _ w _ _ _ => (0 <= ci / g)%Z /\
      Forall (fun a => (0 <= Window.kernel a)%Z /\ most_taps a = Window.kernel a) w
  | Average w _ _ => Forall (fun a => (0 <= most_taps a)%Z) w
  | Contracted letters _ _ _ _ => Forall (fun n => (0 <= n)%Z) letters
  | Transposed _ g _ co w _ _ _ => (0 < co / g)%Z /\
      Forall (fun a => (0 <= Window.kernel a)%Z /\ most_joined a = Window.kernel a /\ spaced a) w
  | _ => True
  end.
Theorem own_enough env n p : is_linear (what n) = true -> counted (what n) -> fits env n = true ->
  In p (positions (extents n)) ->
  enough (own_roundings (what n)) (own_terms (fun x => extent (env x)) (extents n) (what n) p).
Proof.
  intros L C F P. unfold fits in F. assert (B : forall bias q, Z.of_nat (length (bias_terms bias q)) = biased bias)
    by (intros [b|] q; reflexivity).
  destruct (what n) as [lo hi|b gr ci co w weights bias x|b gr ci co w weights bias x|w d x|w x|x|bf x|x z|x z|k x|k
    x|x|ls at_x at_w weights x|l]; try discriminate L; cbn [own_terms own_roundings counted] in *.
  - left. apply andb_prop in F as [_ N]. apply same_shape_eq in N. destruct C as [C W].
    rewrite app_length, Nat2Z.inj_add, B.
    apply Zplus_le_compat_r. rewrite N in P.
    pose proof (gather_at_most (Conv.conv_window b gr ci co w) p
      (fun t i => (weights (Conv.weight_at p t), Cell x i)) P) as G. unfold gather_terms.
    apply inj_le in G. eapply Z.le_trans; [exact G|]. unfold Conv.conv_window, Conv.mapped. cbn [fold_right most_taps
      Window.kernel]. rewrite !Nat2Z.inj_mul, (Z2Nat.id (ci / gr)) by exact C. change (Z.to_nat 1) with 1%nat.
    assert (E : Z.of_nat (fold_right (fun a n => (Z.to_nat (most_taps a) * n)%nat) 1%nat w) =
      product (map Window.kernel w)).
    { rewrite product_nat by (eapply Forall_impl; [|exact W]; cbv beta; intros a [A1 A2]; lia). f_equal.
      apply map_ext_in. intros a I. rewrite Forall_forall in W. now apply W. }
    rewrite E. lia.
  - left. destruct C as [C W]. rewrite app_length, Nat2Z.inj_add, B. apply Zplus_le_compat_r.
    assert (Sp : Forall spaced (Conv.conv_window b gr ci co w)).
    { unfold Conv.conv_window, Conv.mapped. constructor; [discriminate|]. constructor; [exact C|].
      eapply Forall_impl; [|exact W]. cbv beta. tauto. }
    pose proof (scatter_at_most _ Sp p (fun o t => (weights (Conv.weight_at o t), Cell x o))) as G. apply inj_le in G.
    eapply Z.le_trans; [exact G|]. unfold Conv.conv_window, Conv.mapped. cbn [fold_right most_joined Window.kernel].
    rewrite !Nat2Z.inj_mul, (Z2Nat.id (co / gr)) by lia. change (Z.to_nat 1) with 1%nat.
    assert (E : Z.of_nat (fold_right (fun a n => (Z.to_nat (most_joined a) * n)%nat) 1%nat w) =
      product (map Window.kernel w)).
    { rewrite product_nat by (eapply Forall_impl; [|exact W]; cbv beta; intros a [A1 [A2 _]]; lia). f_equal.
      apply map_ext_in. intros a I. rewrite Forall_forall in W. now apply W. }
    rewrite E. lia.
  - left. apply andb_prop in F as [F _]. apply andb_prop in F as [_ N]. apply same_shape_eq in N. rewrite N in P.
    pose proof (gather_at_most w p (fun _ i => (match part_of d w p with Some c => c | None => zero end, Cell x i)) P)
      as G.
    unfold gather_terms. apply inj_le in G. rewrite product_nat in G by exact C.
    assert (D : (0 <= divisor_roundings d (product (map most_taps w)))%Z).
    { unfold divisor_roundings. destruct d; cbv zeta;
      match goal with |- context [if ?b then _ else _] => destruct b end;
      lia. }
    unfold taps_of. lia.
  - right. split; [|cbn [length]; lia]. intros ct [<-|[<-|[]]]; left; apply real_one.
  - right. split; [|cbn [length]; lia]. intros ct [<-|[<-|[]]]; [left; apply real_one | right]. cbn [fst].
    rewrite real_neg, real_one. reflexivity.
  - left. cbn [length]. lia.
  - right. split; [|cbn [length]; lia]. intros ct [<-|[<-|[]]]; left; apply real_one.
  - right. split; [|cbn [length]; lia]. intros ct [<-|[]]. right. cbn [fst]. rewrite real_neg, real_one. reflexivity.
  - left. rewrite map_length, positions_length by exact C. lia.
  - right. split; [|cbn [length]; lia]. intros ct [<-|[]]. left. apply real_one.
Qed.
(* So every position of every node of such a graph has a formula, node by node. *)
Definition valued (env : list entry) (vals : list (list Z * array value)) : Prop :=
  forall x, extent (reader env x) = fst (nth x vals no_value) /\
    forall q, In q (positions (extent (reader env x))) -> exists r, snd (nth x vals no_value) q r.
Theorem by_node_has_values unit key_of manners nodes : 0 <= unit ->
  (forall n, In n nodes -> is_linear (what n) = true -> counted (what n)) ->
  forall env vals part env', compile key_of manners nodes env = Some (part, env') -> length vals = length env ->
  valued env vals -> valued env' (by_node unit key_of nodes vals).
Proof.
  intros U. induction nodes as [|n nodes IH]; intros Cn env vals part env' C Lv V; [injection C as _ <-; exact V|].
  cbn [compile] in C. destruct (add_node _ _ _ _ _) as [[cells e]|] eqn:A; [|discriminate].
  destruct (compile _ _ nodes _) as [[rest env2]|] eqn:C2; [|discriminate]. injection C as _ <-. cbn [by_node].
  eapply (IH (fun m I => Cn m (or_intror I)) (env ++ [e])); [exact C2 | rewrite !app_length; simpl; lia |].
  intros x. destruct (lt_eq_lt_dec x (length env)) as [[L|E]|L].
  - unfold reader. rewrite !app_nth1 by lia. exact (V x).
  - subst x. assert (Rd : reader (env ++ [e]) (length env) = e) by apply nth_last. rewrite Rd.
    pose proof (extent_of_node key_of manners _ _ _ _ _ A) as X. rewrite <- Lv, nth_last. cbn [fst snd].
    split; [exact X|]. intros p P. rewrite X in P. unfold node_values.
    destruct (is_linear (what n)) eqn:Lin; [|exists (Some (Read (key_of (length vals) p) 0,
      [Addend 1 1 [(key_of (length vals) p, 0)]])); exists 0; reflexivity].
    assert (F : fits (reader env) n = true).
    { unfold add_node in A. destruct (fits (reader env) n); [reflexivity | discriminate]. }
    assert (S : forall x, fst (nth x vals no_value) = extent (reader env x)) by (intros x; symmetry; apply V).
    rewrite (own_terms_same _ _ _ _ _ S). apply enough_has_value; [exact U | |].
    + apply own_enough; auto. apply Cn; [now left | exact Lin].
    + intros c o I. destruct o as [x q|k]; cbn [origin_value]; [|eexists; reflexivity].
      apply (proj2 (V x)). eapply own_inside; eauto.
  - unfold reader. rewrite !nth_overflow by (rewrite app_length; simpl; lia). split; [reflexivity|].
    intros q _. exists None. reflexivity.
Qed.

(* --- these statements are about something --- *)
(* The graph relu(x * third + 1/4) of one cell from 1 to 2: it is accepted, and at each float of the box it has an
   execution, in which the product and the sum are computed one after the other. *)
Definition example_nodes : list node :=
  [Node [1%Z] (Given (fun _ => one) (fun _ => of_Z 2)) true; Node [1%Z] (Times (fun _ => third) 0) false;
   Node [1%Z] (Shifted (fun _ => power (-2)) 1) true; Node [1%Z] (Positive 2) true].
Definition example_key (i : nat) (p : list Z) : key := Nat.iter i Even Here.
Definition example_graph_groups : list (list (list placed_row) * plan) :=
  [([[PlacedRow [([0%Z], one)] (power (-1))]], Reasons [Reason [one] Empty [] [] Empty])].
Lemma example_graph_accepted :
  check_graph example_key example_nodes 3 (power (-24)) example_graph_groups = Some true.
Proof. vm_compute. reflexivity. Qed.
Definition example_manners : nat -> manner :=
  match manners_of example_nodes [3%nat] with Some m => m | None => fun _ => Manner None 0 false end.
Definition example_compiled : network * list entry :=
  match compile example_key example_manners example_nodes [] with Some c => c | None => ([], []) end.
Theorem example_graph_executes x : is_finite x = true -> 1 <= B2R x <= 2 ->
  let unit := real (power (-24)) in let drawn := fun (_ : key) (_ : nat) => x in
  let used := code_by_node unit example_key example_nodes drawn in
  manners_of example_nodes [3%nat] = Some example_manners /\
  compile example_key example_manners example_nodes [] = Some example_compiled /\
  execution32 (fst example_compiled) unit (example_held x) drawn used /\
  exists y, possible32 (fst example_compiled) unit (example_held x) used (example_key 3 [0%Z]) y.
Proof.
  intros F I unit drawn used.
  assert (Net : fst example_compiled = [(Here, Input one (of_Z 2)); (Even (Even Here), Sum (Sums
    [Term third (Some Here) false; Term (power (-2)) None false] zero 3 one false));
    (Even (Even (Even Here)), Relu (Even (Even Here)))]) by (vm_compute; reflexivity).
  assert (U : 0 < unit) by (unfold unit; rewrite real_power; apply bpow_gt_0).
  split; [reflexivity|]. split; [reflexivity|]. rewrite Net. clear Net. split.
  - split; [|split].
    + intros k l h [[= <- <- <-]|[E|[E|[]]]]; try discriminate. split; [exact F|]. rewrite real_one, real_of_Z. exact I.
    + intros k s [E|[[= <- <-]|[E|[]]]] O; discriminate.
    + intros k s n p j [E|[[= <- <-]|[E|[]]]]; try discriminate. intros P H. destruct n as [|[|n]]; simpl in P;
        [injection P as <-; discriminate | injection P as <-; discriminate | destruct n; discriminate].
  - set (c := Adds (Multiplies (Word third32) (Loaded Here x)) (Word quarter32)).
    assert (E3 : B2R third32 = real third) by reflexivity. assert (E4 : B2R quarter32 = real (power (-2))).
    { unfold B2R, quarter32, F2R, real. cbn [Fnum Fexp cond_Zopp mantissa exponent power].
      change (IZR (Z.pos 8388608)) with (IZR (2 ^ 23)). rewrite (IZR_Zpower radix2) by lia. rewrite <- bpow_plus.
      simpl. ring. }
    assert (A : allowed unit mode_NE) by (left; now left).
    assert (Code : used (Even (Even Here)) (Sums [Term third (Some Here) false; Term (power (-2)) None false] zero 3 one
      false) c).
    { split; [now repeat split|]. exists 2%nat, (Node [1%Z] (Shifted (fun _ => power (-2)) 1) true), [0%Z].
      set (ms := [times (Addend (real third) (wide_of third) []) (Addend 1 1 [(Here, B2R x)])]).
      exists (Some (written unit c, weighted one ms ++
        weighted one [Addend (real (power (-2))) (wide_of (power (-2))) []])).
      split; [reflexivity|]. split; [reflexivity|]. split; [reflexivity|]. split; [now left|]. split; [reflexivity|].
      split; [|split; [reflexivity|]].
      - exists [(one, Some (Rounded unit (Multiplied (Constant (real third)) (Read Here (B2R x))), ms));
          (one, Some (Constant (real (power (-2))), [Addend (real (power (-2))) (wide_of (power (-2))) []]))].
        split; [|cbn [live]].
        + constructor; [split; [reflexivity|] | constructor; [split; reflexivity | constructor]].
          exists [(third, Some (Read Here (B2R x), [Addend 1 1 [(Here, B2R x)]]))].
          split; [constructor; [split; [reflexivity | exists (B2R x); reflexivity] | constructor]|].
          cbn [live].
          eexists _, 1%nat, (Rounded unit (Multiplied (Constant (real third)) (Read Here (B2R x)))).
          split; [apply Permutation_refl|]. cbn [map fst snd]. split.
          * eapply adds_product; [apply as_is | apply as_is | apply product_left | lra].
          * split; [simpl; lia | reflexivity].
        + eexists _, 1%nat, (Rounded unit (CheckTrees.Added
            (Rounded unit (Multiplied (Constant (real third)) (Read Here (B2R x)))) (Constant (real (power (-2)))))).
          split; [apply Permutation_refl|]. cbn [map fst snd]. split.
          * apply (adds_sum unit 0 0 [(one, Rounded unit (Multiplied (Constant (real third)) (Read Here (B2R x))))]
              [(one, Constant (real (power (-2))))] _ _ _ _ unit (adds_value _ _ _ real_one) (adds_value _ _ _ real_one)
              (as_is _) (as_is _)). lra.
          * split; [simpl; lia|]. unfold c. cbn [written flat_map fst snd]. rewrite E3, E4, app_nil_r. reflexivity.
      - repeat split; discriminate. }
    set (w := example_held x (Even Here)).
    assert (W : possible32 [(Here, Input one (of_Z 2)); (Even (Even Here), Sum (Sums
      [Term third (Some Here) false; Term (power (-2)) None false] zero 3 one false));
      (Even (Even (Even Here)), Relu (Even (Even Here)))] unit (example_held x) used (Even (Even Here)) w).
    { eapply (possible32_sum _ _ _ _ (Even (Even Here)) _ c); [right; now left | reflexivity | exact Code | |].
      - intros j v [[= <- <-]|[]]. eapply (possible32_input _ _ (example_held x) _ Here). now left.
      - apply (gives_adds _ mode_NE); [exact A | | constructor].
        apply (gives_multiplies _ mode_NE); [exact A | |]; constructor. }
    pose proof least_normal_pos as T. exists (if Rle_dec 0 (B2R w) then w else B754_zero false).
    eapply (possible32_relu _ _ _ _ (Even (Even (Even Here))) (Even (Even Here))); [right; right; now left | exact W |].
    intros Fs. inversion Fs as [|y l Fy _]. destruct (Rle_dec 0 (B2R w)) as [P|N].
    + split; [exact Fy|]. rewrite Rmax_right, Rminus_diag_eq, Rabs_R0 by (reflexivity || exact P). lra.
    + split; [reflexivity|]. simpl (B2R (B754_zero _)).
      rewrite Rmax_left, Rminus_diag_eq, Rabs_R0 by (reflexivity || lra). lra.
Qed.
