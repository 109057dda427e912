(* Padding: terms with a factor 0 may be computed or left out. An execution that computes them is one that does not.

   A convolution over padded cells multiplies zeros, or skips them; a bound that counts the taps inside must hold of
   both. `is_zero` trees have a factor 0 in each monomial; such a tree computes 0, and `without` takes it out of the
   sum that it is in, in whose place a rounding stays, since a sum with 0 may still store its result. The tree that
   is left has no more roundings, the same monomials but for those that are 0, and computes the same number: so it is
   an execution of the smaller cell. *)
From Coq Require Import Reals Psatz Lia ZArith.
From Flocq Require Import Core.
From Specgrad Require Import RoundingTree RoundingRegion RoundingFormat RoundingFloat32.
Open Scope R_scope.

(* Every monomial of the tree has a factor that is 0. *)
Inductive is_zero : tree -> Prop :=
  | zero_leaf : is_zero (Leaf 0)
  | zero_neg a : is_zero a -> is_zero (Neg a)
  | zero_add a b : is_zero a -> is_zero b -> is_zero (Add a b)
  | zero_sub a b : is_zero a -> is_zero b -> is_zero (Sub a b)
  | zero_times a b : is_zero a -> is_zero (Mul a b)
  | times_zero a b : is_zero b -> is_zero (Mul a b)
  | zero_fma a b c : is_zero (Mul a b) -> is_zero c -> is_zero (Fma a b c)
  | zero_div a v k : is_zero a -> is_zero (Div a v k)
  | zero_store a : is_zero a -> is_zero (Store a).

(* The tree without some of its zero terms. A sum with 0 still rounds. *)
Inductive without : tree -> tree -> Prop :=
  | without_none t : without t t
  | without_right a b a' : is_zero b -> without a a' -> without (Add a b) (Store a')
  | without_left a b b' : is_zero a -> without b b' -> without (Add a b) (Store b')
  | without_product a b c c' : is_zero (Mul a b) -> without c c' -> without (Fma a b c) (Store c')
  | without_sum a b c : is_zero c -> without (Fma a b c) (Mul a b)
  | without_add a b a' b' : without a a' -> without b b' -> without (Add a b) (Add a' b')
  | without_sub a b a' b' : without a a' -> without b b' -> without (Sub a b) (Sub a' b')
  | without_mul a b a' b' : without a a' -> without b b' -> without (Mul a b) (Mul a' b')
  | without_fma a b c a' b' c' : without a a' -> without b b' -> without c c' -> without (Fma a b c) (Fma a' b' c')
  | without_neg a a' : without a a' -> without (Neg a) (Neg a')
  | without_div a a' v k : without a a' -> without (Div a v k) (Div a' v k)
  | without_store a a' : without a a' -> without (Store a) (Store a').

Section Padding.
Variables u lost : R.
Variable op : R -> R -> Prop.
Hypothesis op_zero : forall z, op 0 z -> z = 0.
Notation computed := (computed u lost op).

Lemma zero_computed t : is_zero t -> forall y, computed t y -> y = 0.
Proof.
  intros Z; induction Z; intros y C; inversion C; subst;
    repeat match goal with IH : forall y, computed ?a y -> y = 0, H : computed ?a _ |- _ =>
      apply IH in H; subst end.
  - match goal with H : read _ _ _ |- _ => destruct H as [-> | [-> _]]; reflexivity end.
  - ring.
  - apply op_zero. now replace 0 with (0 + 0) by ring.
  - apply op_zero. now replace 0 with (0 - 0) by ring.
  - apply op_zero. match goal with H : op (0 * ?y) _ |- _ => now rewrite Rmult_0_l in H end.
  - apply op_zero. match goal with H : op (?x * 0) _ |- _ => now rewrite Rmult_0_r in H end.
  - apply IHZ1. match goal with H : op (?x * ?y + 0) _ |- _ => rewrite Rplus_0_r in H end. econstructor; eassumption.
  - apply op_zero. match goal with H : op (0 / ?w) _ |- _ => unfold Rdiv in H; now rewrite Rmult_0_l in H end.
  - now apply op_zero.
Qed.

Lemma zero_product a b x y : is_zero (Mul a b) -> computed a x -> computed b y -> x * y = 0.
Proof.
  intros Z Ca Cb. inversion Z as [| | | | ? ? Za | ? ? Zb | | |]; subst.
  - rewrite (zero_computed a Za x Ca). ring.
  - rewrite (zero_computed b Zb y Cb). ring.
Qed.

Theorem without_computed t t' : without t t' -> (roundings t' <= roundings t)%nat /\ forall y, computed t y ->
  computed t' y.
Proof.
  intros W; induction W;
    repeat match goal with H : _ /\ _ |- _ => destruct H end; (split; [simpl; lia|]); intros y C;
      [exact C | | | | | | | | | | |];
    inversion C; subst.
  - match goal with H : computed b ?y |- _ => apply (zero_computed b) in H; [subst | assumption] end.
    match goal with H : op (_ + 0) _ |- _ => rewrite Rplus_0_r in H end. econstructor; eauto.
  - match goal with H : computed a ?y |- _ => apply (zero_computed a) in H; [subst | assumption] end.
    match goal with H : op (0 + _) _ |- _ => rewrite Rplus_0_l in H end. econstructor; eauto.
  - match goal with H : op (?x * ?y + _) _, Ha : computed a ?x, Hb : computed b ?y |- _ =>
      rewrite (zero_product a b x y), Rplus_0_l in H by assumption end. econstructor; eauto.
  - match goal with H : computed c ?y |- _ => apply (zero_computed c) in H; [subst | assumption] end.
    match goal with H : op (_ + 0) _ |- _ => rewrite Rplus_0_r in H end. econstructor; eauto.
  - econstructor; eauto.
  - econstructor; eauto.
  - econstructor; eauto.
  - econstructor; eauto.
  - econstructor; eauto.
  - econstructor; eauto.
  - econstructor; eauto.
Qed.

(* Executions of a cell that compute zero terms besides are among those of the cell. *)
Theorem padded_executed n c t t' y :
  computed t y -> without t t' -> expands t' c -> (roundings t <= n)%nat -> executed u lost op n c y.
Proof.
  intros C W E Hn. destruct (without_computed _ _ W) as [Hr Hc]. exists t'. split; [now apply Hc|].
  split; [exact E | lia].
Qed.
End Padding.

Lemma operation32_zero z : operation32 0 z -> z = 0.
Proof.
  intros O; induction O; try reflexivity; unfold nearest; rewrite !round_0; auto; try apply valid_rnd_N.
Qed.
