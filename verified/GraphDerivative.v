(** Graphs of operators over the reals: the tangent is the derivative, and the reverse sweep its gradient, by limits.

    What is asked of an operator is the chain rule at the point where the graph is: if all cells that it reads move
    along curves that have a derivative at 0, then so do the cells that it writes, and theirs is its tangent. An
    operator such as max_pool or relu has that away from ties and kinks only, so it is asked where the graph meets it,
    of the values that it has there. Then, by induction over the nodes, the tangent of the graph is its derivative along
    any curves of its inputs, and what the sweep backwards gives is the gradient. *)
From Coq Require Import ZArith Reals List Bool Arith Lia Lra FunctionalExtensionality.
From Coquelicot Require Import Coquelicot.
From Specgrad Require Import Numbers Window Conv SmoothMax SmoothDerivative Graph.
Import ListNotations.
Local Open Scope R_scope.

(** x h moves with h; every listed cell of every listed tensor has the derivative dx at h = 0. *)
Definition moves (x : R -> tensor R) (dx : tensor R) (cells : list (list Z)) : Prop :=
  forall i, In i cells -> is_derive (fun h => x h i) 0 (dx i).
(** Law 2 of an operator at the values a: the chain rule. *)
Definition chain_rule (op : operator (F := R)) (froms : list (list (list Z))) (cells : list (list Z)) (a : tensors R) :=
  forall (x : R -> tensors R) dx, x 0 = a ->
  (forall n, (n < length froms)%nat -> moves (fun h => x h n) (dx n) (nth n froms [])) ->
  moves (fun h => value op (x h)) (jvp op a dx) cells.

Section Graph.
Variables (places : list nat) (cells : nat -> list (list Z)).
Definition smooth_node (nx : node * tensors R) : Prop :=
  incl (args (fst nx)) places /\
  chain_rule (op (fst nx)) (map cells (args (fst nx))) (cells (place (fst nx))) (snd nx).

Lemma node_moves n (x : R -> tensors R) dx : smooth_node (n, arguments n (x 0)) ->
  (forall p, In p places -> moves (fun h => x h p) (dx p) (cells p)) ->
  forall p, In p places -> moves (fun h => after n (x h) p) (after_jvp n (x 0) dx p) (cells p).
Proof.
  intros [I C] M p P. unfold after, after_jvp, write. destruct (Nat.eqb_spec p (place n)) as [->|]; [|now apply M].
  apply (C (fun h => arguments n (x h)) (arguments n dx)); [reflexivity|]. rewrite map_length. intros k K.
  rewrite (nth_indep _ [] (cells 0%nat)), map_nth by (rewrite map_length; exact K). apply M. now apply I, nth_In.
Qed.

(** Law 2 of a graph over the reals: along any curves of what it starts with, its tangent is its derivative. *)
Theorem graph_derivative g (x : R -> tensors R) dx : List.Forall smooth_node (tape g (x 0)) ->
  (forall p, In p places -> moves (fun h => x h p) (dx p) (cells p)) ->
  forall p, In p places -> moves (fun h => run g (x h) p) (run_jvp g (x 0) dx p) (cells p).
Proof.
  revert x dx. induction g as [|n g IH]; intros x dx S M; [exact M|]. inversion_clear S as [|? ? Sn Sg].
  cbn [run run_jvp].
  apply (IH (fun h => after n (x h))); [exact Sg | now apply node_moves].
Qed.

(** Law 2 along a straight line x + h * dx. *)
Definition line (x dx : tensors R) h : tensors R := fun p => moved (x p) (dx p) h.
Lemma line_at_0 x dx : line x dx 0 = x.
Proof. apply functional_extensionality; intros p. apply functional_extensionality; intros i. unfold line, moved. ring.
Qed.
Theorem graph_derivative_line g x dx p i : List.Forall smooth_node (tape g x) -> In p places -> In i (cells p) ->
  is_derive (fun h => run g (line x dx h) p i) 0 (run_jvp g x dx p i).
Proof.
  intros S P I. pose proof (graph_derivative g (line x dx) dx) as G. rewrite line_at_0 in G. apply G; auto.
  intros q Q j J. unfold line, moved. auto_derive; [exact Logic.I | ring].
Qed.

Lemma sum_derivative {A} (l : list A) (f : A -> R -> R) d :
  (forall a, In a l -> is_derive (f a) 0 (d a)) -> is_derive (fun h => sum reals l (fun a => f a h)) 0 (sum reals l d).
Proof.
  induction l as [|a l IH]; intros H; simpl.
  - apply (is_derive_const (K := R_AbsRing) (V := R_NormedModule)).
  - apply (is_derive_plus (f a) (fun h => sum reals l (fun a => f a h)));
      [apply H; now left | apply IH; intros; apply H; now right].
Qed.
Lemma inner_derivative ps gy (x : R -> tensor R) dx : moves x dx ps ->
  is_derive (fun h => inner reals ps gy (x h)) 0 (inner reals ps gy dx).
Proof.
  intros M. apply (sum_derivative ps (fun i h => gy i * x h i)). intros i I.
  apply (is_derive_scal (fun h => x h i) 0 (gy i)). now apply M.
Qed.
Hypothesis distinct : NoDup places.

(** Law 1 and Law 2: the sweep backwards gives the gradient: <gy, outputs> has the derivative <cotangents of the inputs,
   dx>. *)
Theorem sweep_gradient g x dx gy : List.Forall (lawful reals places cells) g -> List.Forall smooth_node (tape g x) ->
  is_derive (fun h => pairing reals places cells gy (run g (line x dx h))) 0
    (pairing reals places cells (sweep reals g x gy) dx).
Proof.
  intros L S. rewrite <- (sweep_adjoint reals places cells distinct g x dx gy L). unfold pairing.
  apply (sum_derivative places (fun p h => inner reals (cells p) (gy p) (run g (line x dx h) p))). intros p P.
  apply inner_derivative. intros i I. now apply graph_derivative_line.
Qed.
(** Law 1 and Law 2, with named inputs and outputs, of which one may be named more than once. *)
Theorem vjp_gradient g inputs outputs x dx gy : List.Forall (lawful reals places cells) g ->
  List.Forall smooth_node (tape g x) ->
  NoDup inputs -> incl inputs places -> incl outputs places ->
  is_derive (fun h => sum reals (seq 0 (length outputs)) (fun k => inner reals (cells (nth k outputs 0%nat)) (gy k)
      (run g (line x (only reals inputs dx) h) (nth k outputs 0%nat)))) 0
    (sum reals inputs (fun p => inner reals (cells p) (sweep reals g x (seeds reals outputs gy) p) (dx p))).
Proof.
  intros L S N I O. rewrite <- (vjp_adjoint reals places cells distinct g inputs outputs x dx gy L N I O).
  apply (sum_derivative (seq 0 (length outputs)) (fun k h => inner reals (cells (nth k outputs 0%nat)) (gy k)
    (run g (line x (only reals inputs dx) h) (nth k outputs 0%nat)))). intros k K. apply in_seq in K.
  apply inner_derivative. intros i J. apply graph_derivative_line; auto. apply O, nth_In. lia.
Qed.
End Graph.
