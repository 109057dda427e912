(** The numbers that a theorem is about: any commutative ring, with a division of which nothing is asked. The
    rationals (Qc: fractions in lowest terms) and the reals are two of them, and dual numbers (Dual.v) a third.

    So what is proven of windows, convolutions and their cotangents is proven once, for exact arithmetic over
    rationals, which is what the Python specification computes in, and for the reals, which is what users mean. It
    says nothing of floats: they are no ring. Sums are over lists, because a window is a list of taps; the lemmas
    here are all that is used of sums: equal terms, sums of sums, a factor taken out, and two sums swapped, which is
    what makes a gather and a scatter adjoint. *)
From Coq Require Import ZArith List Ring_theory Ring Qcanon Reals.
Import ListNotations.

Record numbers (F : Type) := {
  zero : F; one : F;
  add : F -> F -> F; mul : F -> F -> F; sub : F -> F -> F; opp : F -> F;
  div : F -> F -> F;
  laws : ring_theory zero one add mul sub opp eq
}.
Arguments zero {F}. Arguments one {F}. Arguments add {F}. Arguments mul {F}. Arguments sub {F}. Arguments opp {F}.
Arguments div {F}. Arguments laws {F}.

Definition rationals : numbers Qc := {| div := Qcdiv; laws := Qcrt |}.
Definition reals : numbers R := {| div := Rdiv; laws := RTheory |}.

Section Sums.
Context {F : Type} (num : numbers F).
Add Ring numbers_ring : (laws num).
Local Notation "0" := (zero num).
Local Notation "1" := (one num).
Local Infix "+" := (add num).
Local Infix "*" := (mul num).

Definition sum {A} (l : list A) (f : A -> F) : F := fold_right (fun a s => f a + s) 0 l.
(** n as a number: 1 + ... + 1 *)
Definition number (n : nat) : F := sum (repeat tt n) (fun _ => 1).

Lemma sum_ext {A} (l : list A) f g : (forall a, In a l -> f a = g a) -> sum l f = sum l g.
Proof. induction l; simpl; intros H; [reflexivity | rewrite H by auto; rewrite IHl by auto; reflexivity]. Qed.
Lemma sum_plus {A} (l : list A) f g : sum l (fun a => f a + g a) = sum l f + sum l g.
Proof. induction l; simpl; [ring | rewrite IHl; ring]. Qed.
Lemma sum_zero {A} (l : list A) : sum l (fun _ => 0) = 0.
Proof. induction l; simpl; [ring | rewrite IHl; ring]. Qed.
Lemma sum_zeros {A} (l : list A) f : (forall a, In a l -> f a = 0) -> sum l f = 0.
Proof. intros H. rewrite <- (sum_zero l). now apply sum_ext. Qed.
Lemma sum_mul_l {A} (l : list A) c f : c * sum l f = sum l (fun a => c * f a).
Proof. induction l; simpl; [ring | rewrite <- IHl; ring]. Qed.
Lemma sum_mul_r {A} (l : list A) c f : sum l f * c = sum l (fun a => f a * c).
Proof. induction l; simpl; [ring | rewrite <- IHl; ring]. Qed.
Lemma sum_swap {A B} (l : list A) (m : list B) f :
  sum l (fun a => sum m (f a)) = sum m (fun b => sum l (fun a => f a b)).
Proof. induction l; simpl; [now rewrite sum_zero | now rewrite IHl, <- sum_plus]. Qed.
Lemma sum_app {A} (l m : list A) f : sum (l ++ m) f = sum l f + sum m f.
Proof. induction l; simpl; [ring | rewrite IHl; ring]. Qed.
Lemma sum_map {A B} (g : A -> B) l f : sum (map g l) f = sum l (fun a => f (g a)).
Proof. induction l; simpl; [reflexivity | now rewrite IHl]. Qed.
Lemma sum_flat_map {A B} (g : A -> list B) l f : sum (flat_map g l) f = sum l (fun a => sum (g a) f).
Proof. induction l; simpl; [reflexivity | now rewrite sum_app, IHl]. Qed.
Lemma sum_length {A} (l : list A) : sum l (fun _ => 1) = number (length l).
Proof. unfold number. induction l; simpl; [reflexivity | now rewrite IHl]. Qed.
End Sums.
