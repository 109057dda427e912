(** Graphs of operators over any commutative ring: values, tangents and the reverse sweep, and what they are.

    A tensor is a function of positions. A graph is a list of nodes; each writes one place, a number, from the places
    that it reads. An operator has a value, a tangent (jvp) and cotangents (vjp), one for each tensor that it reads.
    What is asked of an operator is a law of this operator alone: that its cotangents are the adjoint of its tangent,
    and that over dual numbers its coefficient is its tangent. Then, by induction over the nodes, the same holds of
    every graph: the sweep backwards is the adjoint of the graph's tangent, however often a place is read and whichever
    places are outputs, and the tangent is the dual-number evaluation. Places are compared by number, so a graph may
    even write one place twice; where it does not, the sweep may take the values from the end, as one that is executed
    does. *)
From Coq Require Import ZArith List Bool Arith Lia Ring.
From Specgrad Require Import Numbers Window Conv Dual.
Import ListNotations.
Local Open Scope nat_scope.

Definition tensor (F : Type) := list Z -> F.
Definition tensors (F : Type) := nat -> tensor F.

Section Graph.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring : (laws num).
Local Notation "[0]" := (zero num).
Local Infix "[+]" := (add num) (at level 50, left associativity).

(** n-th argument: the n-th tensor that it reads. vjp x gy n: the cotangent of the n-th argument. *)
Record operator := {
  value : tensors F -> tensor F;
  jvp : tensors F -> tensors F -> tensor F;
  vjp : tensors F -> tensor F -> nat -> tensor F
}.
(** Law 1 of an operator that reads tensors of cells `froms`, and writes `cells`. *)
Definition adjoint_law (op : operator) (froms : list (list (list Z))) (cells : list (list Z)) : Prop :=
  forall x dx gy, inner num cells gy (jvp op x dx) =
    sum num (seq 0 (length froms)) (fun n => inner num (nth n froms []) (vjp op x gy n) (dx n)).

Record node := { op : operator; args : list nat; place : nat }.
Definition graph := list node.

Definition arguments (n : node) (x : tensors F) : tensors F := fun k => x (nth k (args n) O).
Definition write (p : nat) (v : tensor F) (x : tensors F) : tensors F := fun j => if j =? p then v else x j.

(** Values of all places, from those at the start; tangents with them. *)
Definition after (n : node) x := write (place n) (value (op n) (arguments n x)) x.
Definition after_jvp (n : node) x dx := write (place n) (jvp (op n) (arguments n x) (arguments n dx)) dx.
Fixpoint run (g : graph) x := match g with [] => x | n :: g => run g (after n x) end.
Fixpoint run_jvp (g : graph) x dx := match g with [] => dx | n :: g => run_jvp g (after n x) (after_jvp n x dx) end.

(** The sweep backwards: each node with the values that it read; what a place has received is passed on to the arguments
   of the node that wrote it, and added to what they have received. *)
Fixpoint tape (g : graph) x : list (node * tensors F) :=
  match g with [] => [] | n :: g => (n, arguments n x) :: tape g (after n x) end.
Definition received (n : node) (back : nat -> tensor F) (j : nat) (i : list Z) : F :=
  sum num (seq 0 (length (args n))) (fun k => if nth k (args n) O =? j then back k i else [0]).
Definition pass_back (nx : node * tensors F) (g : tensors F) : tensors F :=
  let (n, x) := nx in
  fun j i => (if j =? place n then [0] else g j i) [+] received n (vjp (op n) x (g (place n))) j i.
Definition sweep (g : graph) x (gy : tensors F) : tensors F := fold_right pass_back gy (tape g x).

(** Law 1, for a program that keeps what it has computed: `keep` gives the same tensors, so what is swept is the same.
    Without it a cell would be computed anew for whoever reads it. *)
Definition kept_sweep (keep : tensors F -> tensors F) (g : graph) x (gy : tensors F) : tensors F :=
  fold_right (fun nx back => keep (pass_back nx back)) gy (tape g x).
Theorem kept_sweep_same keep g x gy : (forall t, keep t = t) -> kept_sweep keep g x gy = sweep g x gy.
Proof. intros K. unfold kept_sweep, sweep. induction (tape g x) as [|n l IH]; simpl; [|rewrite K, IH]; reflexivity. Qed.

(** Places that matter, and the cells of each. *)
Variables (places : list nat) (cells : nat -> list (list Z)).
Hypothesis distinct : NoDup places.
Definition pairing (g dx : tensors F) : F := sum num places (fun p => inner num (cells p) (g p) (dx p)).
Definition lawful (n : node) : Prop :=
  In (place n) places /\ incl (args n) places /\ adjoint_law (op n) (map cells (args n)) (cells (place n)).

Lemma inner_add_l ps a b c : inner num ps (fun i => a i [+] b i) c = inner num ps a c [+] inner num ps b c.
Proof. unfold inner. rewrite <- sum_plus. apply sum_ext; intros; ring. Qed.
Lemma inner_sum_l {A} (l : list A) ps a c :
  inner num ps (fun i => sum num l (fun k => a k i)) c = sum num l (fun k => inner num ps (a k) c).
Proof.
  unfold inner. rewrite sum_swap. apply sum_ext; intros i _. now rewrite sum_mul_r.
Qed.
Lemma inner_zero_l ps c : inner num ps (fun _ => [0]) c = [0].
Proof. apply sum_zeros. intros. ring. Qed.
Lemma at_one_place (l : list nat) p f : NoDup l -> In p l -> sum num l (fun j => if p =? j then f j else [0]) = f p.
Proof.
  induction 1 as [|a l N D IH]; intros P; [destruct P|]. simpl. destruct (Nat.eqb_spec p a) as [->|Ne].
  - rewrite sum_zeros; [ring|]. intros j J. destruct (Nat.eqb_spec a j) as [->|]; [contradiction | reflexivity].
  - destruct P as [E|P]; [congruence|]. rewrite IH by exact P. ring.
Qed.
(** What is changed at one place. *)
Lemma sum_at_place p f h : In p places ->
  sum num places (fun j => if j =? p then h j else f j) [+] f p = sum num places f [+] h p.
Proof.
  intros P. rewrite <- (at_one_place places p f distinct P), <- (at_one_place places p h distinct P), <- !sum_plus.
  apply sum_ext. intros j _. rewrite (Nat.eqb_sym j p). destruct (p =? j); ring.
Qed.

(** What the arguments receive, paired with their changes: one term for each argument, however often a place is read. *)
Lemma received_pairing n back dx : incl (args n) places ->
  sum num places (fun p => inner num (cells p) (received n back p) (dx p)) =
  sum num (seq 0 (length (args n)))
    (fun k => inner num (cells (nth k (args n) O)) (back k) (dx (nth k (args n) O))).
Proof.
  intros I. unfold received.
  transitivity (sum num places (fun p => sum num (seq 0 (length (args n))) (fun k =>
    if nth k (args n) O =? p then inner num (cells p) (back k) (dx p) else [0]))).
  { apply sum_ext. intros p _. rewrite inner_sum_l. apply sum_ext. intros k _.
    destruct (_ =? p); [reflexivity | apply inner_zero_l]. }
  rewrite sum_swap. apply sum_ext. intros k K. apply in_seq in K.
  apply (at_one_place places _ (fun p => inner num (cells p) (back k) (dx p)) distinct). apply I, nth_In. lia.
Qed.

Lemma node_adjoint n x dx g : lawful n ->
  pairing g (after_jvp n x dx) = pairing (pass_back (n, arguments n x) g) dx.
Proof.
  intros (P & I & L). set (p := place n) in *. set (back := vjp (op n) (arguments n x) (g p)).
  assert (R : pairing (pass_back (n, arguments n x) g) dx =
    sum num places (fun j => if j =? p then [0] else inner num (cells j) (g j) (dx j)) [+]
    inner num (cells p) (g p) (jvp (op n) (arguments n x) (arguments n dx))).
  { rewrite L, map_length. transitivity (sum num places
      (fun j => (if j =? p then [0] else inner num (cells j) (g j) (dx j)) [+]
      inner num (cells j) (received n back j) (dx j))).
    - apply sum_ext. intros j _. unfold pass_back. fold p back. rewrite inner_add_l. f_equal.
      destruct (j =? p); [apply inner_zero_l | reflexivity].
    - rewrite sum_plus, (received_pairing n back dx I). f_equal. apply sum_ext. intros k K. apply in_seq in K.
      unfold arguments at 2. f_equal. symmetry. rewrite (nth_indep _ [] (cells O)) by (rewrite map_length; lia).
      now rewrite map_nth. }
  rewrite R. unfold pairing, after_jvp, write. fold p. set (d := jvp _ _ _).
  pose proof (sum_at_place p (fun j => if j =? p then [0] else inner num (cells j) (g j) (dx j))
    (fun j => inner num (cells j) (g j) d) P) as S. cbv beta in S. rewrite Nat.eqb_refl in S. rewrite <- S.
  transitivity (sum num places (fun j => if j =? p then inner num (cells j) (g j) d else
    if j =? p then [0] else inner num (cells j) (g j) (dx j))); [|ring].
  apply sum_ext. intros j _. now destruct (j =? p).
Qed.

(** Law 1 of a graph: the sweep backwards is the adjoint of the graph's tangent, whatever the cotangents of all places
   at the end, and whatever their changes at the start. *)
Theorem sweep_adjoint g x dx gy : Forall lawful g -> pairing gy (run_jvp g x dx) = pairing (sweep g x gy) dx.
Proof.
  intros L. revert x dx. induction L as [|n g L _ IH]; intros x dx; [reflexivity|].
  cbn [run_jvp]. rewrite IH. unfold sweep. cbn [tape fold_right]. now apply node_adjoint.
Qed.

(** Changes of the inputs only; cotangents of the outputs only, of which one may be named more than once. *)
Definition only (ps : list nat) (dx : tensors F) : tensors F :=
  fun j => if existsb (Nat.eqb j) ps then dx j else fun _ => [0].
Definition seeds (outputs : list nat) (gy : nat -> tensor F) : tensors F :=
  fun j i => sum num (seq 0 (length outputs)) (fun k => if nth k outputs O =? j then gy k i else [0]).
Lemma seeds_pairing outputs gy dx : incl outputs places ->
  pairing (seeds outputs gy) dx =
  sum num (seq 0 (length outputs)) (fun k => inner num (cells (nth k outputs O)) (gy k) (dx (nth k outputs O))).
Proof.
  exact (received_pairing {| op := {| value := fun x => x O; jvp := fun _ x => x O; vjp := fun _ g _ => g |};
    args := outputs; place := O |} gy dx).
Qed.
Lemma only_pairing g inputs dx : NoDup inputs -> incl inputs places ->
  pairing g (only inputs dx) = sum num inputs (fun p => inner num (cells p) (g p) (dx p)).
Proof.
  intros N I. unfold pairing, only. transitivity (sum num places (fun j => sum num inputs (fun p =>
    if p =? j then inner num (cells p) (g p) (dx p) else [0]))).
  - apply sum_ext. intros j _. destruct (existsb (Nat.eqb j) inputs) eqn:E.
    + apply existsb_exists in E as (p & P & E). apply Nat.eqb_eq in E. subst p.
      symmetry. transitivity (sum num inputs (fun p => if j =? p then inner num (cells p) (g p) (dx p) else [0])).
      * apply sum_ext. intros p _. now rewrite Nat.eqb_sym.
      * now apply (at_one_place inputs j (fun p => inner num (cells p) (g p) (dx p))).
    + rewrite sum_zeros; [apply sum_zeros; intros; ring|]. intros p P. destruct (Nat.eqb_spec p j) as [->|];
        [|reflexivity].
      assert (T : existsb (Nat.eqb j) inputs = true) by (apply existsb_exists; exists j; now rewrite Nat.eqb_refl).
      congruence.
  - rewrite sum_swap. apply sum_ext. intros p P.
    apply (at_one_place places p (fun _ => inner num (cells p) (g p) (dx p)) distinct). now apply I.
Qed.
(** Law 1 of a graph with inputs and outputs: the sum over outputs of <gy, tangent> is the sum over inputs of
    <cotangent, dx>. *)
Theorem vjp_adjoint g inputs outputs x dx gy : Forall lawful g -> NoDup inputs -> incl inputs places ->
  incl outputs places ->
  sum num (seq 0 (length outputs)) (fun k => inner num (cells (nth k outputs O)) (gy k)
    (run_jvp g x (only inputs dx) (nth k outputs O))) =
  sum num inputs (fun p => inner num (cells p) (sweep g x (seeds outputs gy) p) (dx p)).
Proof.
  intros L N I O. rewrite <- seeds_pairing by exact O. rewrite sweep_adjoint by exact L. now apply only_pairing.
Qed.

(* --- the sweep as it is executed: with the values at the end --- *)
Fixpoint written_once (g : graph) : Prop :=
  match g with
  | [] => True
  | n :: g => (forall m, In m (n :: g) -> ~ In (place m) (args n) /\ (In m g -> place m <> place n)) /\ written_once g
  end.
Definition final_tape (g : graph) x := map (fun n => (n, arguments n x)) g.
Lemma run_keeps g : forall x j, ~ In j (map place g) -> run g x j = x j.
Proof.
  induction g as [|n g IH]; intros x j N; [reflexivity|]. simpl in *. rewrite IH by tauto.
  unfold after, write. destruct (Nat.eqb_spec j (place n)) as [->|]; [tauto | reflexivity].
Qed.
Definition same_pass (a b : node * tensors F) : Prop :=
  fst a = fst b /\ forall k, (k < length (args (fst a)))%nat -> snd a k = snd b k.
(** Law 1: where no node writes what it or a node before it read, the values at the end are those that each node
   read. *)
Theorem tape_is_final g x : written_once g -> Forall2 same_pass (tape g x) (final_tape g (run g x)).
Proof.
  revert x. induction g as [|n g IH]; intros x; [constructor|]. intros [W G]. simpl. constructor; [|now apply IH].
  split; [reflexivity|]. simpl. intros k K. unfold arguments. symmetry. rewrite run_keeps.
  - unfold after, write. destruct (Nat.eqb_spec (nth k (args n) O) (place n)) as [E|]; [|reflexivity].
    destruct (W n (or_introl eq_refl)) as [A _]. elim A. rewrite <- E. now apply nth_In.
  - rewrite in_map_iff. intros (m & E & M). destruct (W m (or_intror M)) as [A _]. apply A. rewrite E. now apply nth_In.
Qed.
(** Law 1: so an operator that looks at its arguments alone passes back the same. *)
Definition reads_arguments (op : operator) (arity : nat) : Prop :=
  forall x y gy, (forall k, (k < arity)%nat -> x k = y k) -> vjp op x gy = vjp op y gy.
Theorem executed_sweep g x gy : written_once g -> Forall (fun n => reads_arguments (op n) (length (args n))) g ->
  sweep g x gy = fold_right pass_back gy (final_tape g (run g x)).
Proof.
  intros W L. pose proof (tape_is_final g x W) as T. unfold sweep.
  assert (M : Forall (fun nx => reads_arguments (op (fst nx)) (length (args (fst nx)))) (tape g x)).
  { clear T W. revert x. induction L; intros; simpl; constructor; auto. }
  revert M. induction T as [|[n a] [m b] l r [E S] _ IH]; [reflexivity|]. intros M. inversion_clear M as [|? ? R M'].
  simpl.
  rewrite IH by exact M'. simpl in *. subst m. unfold pass_back. now rewrite (R a b).
Qed.
End Graph.
Arguments value {F}. Arguments jvp {F}. Arguments vjp {F}. Arguments op {F}. Arguments args {F}. Arguments place {F}.

(* --- over dual numbers --- *)
Section Dual.
Context {F : Type} (num : numbers F).

(** Law 2 of an operator, and of the one that computes the same over dual numbers: over values with their changes, it
   gives the value and the tangent. *)
Definition dual_law (op : operator (F := F)) (over : operator (F := F * F)) (arity : nat) : Prop :=
  forall x dx d, (forall k i, k < arity -> d k i = (x k i, dx k i)) ->
    forall i, value over d i = (value op x i, jvp op x dx i).
(** The same node over other numbers. *)
Definition over_dual (n : node (F := F)) (m : node (F := F * F)) : Prop :=
  args m = args n /\ place m = place n /\ dual_law (op n) (op m) (length (args n)).

(** Law 2 of a graph: the same graph over dual numbers, at values with their changes, gives values with their
   tangents. *)
Theorem graph_dual (g : graph (F := F)) (gd : graph (F := F * F)) : Forall2 over_dual g gd ->
  forall x dx d, (forall j i, d j i = (x j i, dx j i)) -> forall j i, run gd d j i = (run g x j i, run_jvp g x dx j i).
Proof.
  induction 1 as [|n m g gd (A & P & L) _ IH]; intros x dx d D; [exact D|]. simpl. apply IH. intros j i.
  unfold after, after_jvp, write. rewrite P. destruct (j =? place n); [|apply D]. apply L. intros k p _.
  unfold arguments.
  rewrite A. apply D.
Qed.
(** Law 1 and Law 2: so the sweep pairs with the coefficients of the dual-number evaluation. *)
Theorem sweep_dual (places : list nat) (cells : nat -> list (list Z)) g gd x dx d gy : NoDup places ->
  Forall (lawful num places cells) g -> Forall2 over_dual g gd -> (forall j i, d j i = (x j i, dx j i)) ->
  pairing num places cells gy (fun j i => snd (run gd d j i)) = pairing num places cells (sweep num g x gy) dx.
Proof.
  intros N L D E. rewrite <- (sweep_adjoint num places cells N g x dx gy L). apply sum_ext; intros j _.
  apply sum_ext; intros i _. now rewrite (graph_dual g gd D x dx d E).
Qed.
End Dual.
