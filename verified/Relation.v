(** Gather and scatter along any finite relation are adjoint. Every operator with windows is an instance: only the
    relation and its weights change.

    gather(x)(o) is the sum over taps t of weight(o, t) * x(reads(o, t)), without the taps that read nothing.
    scatter(gy)(i) is the sum over all outputs and taps that read i of weight(o, t) * gy(o). Then <gy, gather x> =
    <scatter gy, x>: the sum over outputs, taps and inputs, in two orders. That is what a cotangent has to be, and
    the theorem asks no more than that the inputs are listed once and hold all that is read: no shape, no order of
    axes, no stride. Weights may depend on the output, as an average's divisor does, or on the values themselves, as
    those of a smooth maximum do. *)
From Coq Require Import List Ring.
From Specgrad Require Import Numbers.
Import ListNotations.

Section Relation.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring : (laws num).
Local Notation "0" := (zero num).
Local Infix "+" := (add num).
Local Infix "*" := (mul num).
Context {O T I : Type} (outs : list O) (taps : list T) (same : I -> I -> bool).
Variable reads : O -> T -> option I.                       (* None: a padded tap *)
Variable weight : O -> T -> F.                             (* may depend on the output: divisors, groups *)

Definition gather (x : I -> F) (o : O) : F :=
  sum num taps (fun t => match reads o t with Some i => weight o t * x i | None => 0 end).
Definition scatter (gy : O -> F) (i : I) : F :=
  sum num outs (fun o => sum num taps (fun t =>
    match reads o t with Some j => if same j i then weight o t * gy o else 0 | None => 0 end)).

Variable ins : list I.
Hypothesis same_spec : forall i j, same i j = true <-> i = j.
Hypothesis inside : forall o t i, In o outs -> In t taps -> reads o t = Some i -> In i ins.
Hypothesis distinct : NoDup ins.

Lemma pick j (c : F) (f : I -> F) : In j ins -> sum num ins (fun i => (if same j i then c else 0) * f i) = c * f j.
Proof.
  clear inside. induction ins as [|a l IH]; [intros [] | intros H]. inversion_clear distinct as [|? ? N D]. simpl.
  destruct (same j a) eqn:E.
  - apply same_spec in E. subst a. rewrite sum_zeros; [ring|]. intros i Hi. destruct (same j i) eqn:E; [|ring].
    apply same_spec in E. subst i. tauto.
  - destruct H as [-> | H]; [rewrite (proj2 (same_spec j j) eq_refl) in E; discriminate|]. rewrite IH by auto. ring.
Qed.

(** Law 1: <gy, gather x> = <scatter gy, x>. *)
Theorem adjoint x gy : sum num outs (fun o => gy o * gather x o) = sum num ins (fun i => scatter gy i * x i).
Proof.
  transitivity (sum num ins (fun i => sum num outs (fun o => sum num taps (fun t =>
    match reads o t with Some j => if same j i then weight o t * gy o else 0 | None => 0 end * x i)))).
  2: { apply sum_ext; intros i _. unfold scatter. rewrite sum_mul_r. apply sum_ext; intros o _. now rewrite sum_mul_r. }
  rewrite sum_swap. apply sum_ext; intros o Ho. unfold gather. rewrite sum_mul_l, sum_swap. apply sum_ext; intros t Ht.
  destruct (reads o t) as [j|] eqn:E.
  - rewrite pick by eauto. ring.
  - rewrite sum_zeros; [ring | intros; ring].
Qed.
End Relation.
