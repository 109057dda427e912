(* The same of IEEE binary32 numbers themselves: infinities, NaN and signed zeros included.

   A program of binary32 operations whose tree has `largest` below 2^128 never meets an infinity or a NaN, and what
   it computes is an execution of its tree: so every theorem about `computed` holds of it. Programs are written with
   Flocq's Bplus, Bminus, Bmult, Bdiv and Bfma, to nearest with ties to even, from finite numbers; `tree_of` forgets
   the format. This joins the two worlds: the other files speak of real numbers with roundings, because these can be
   added in any order and bounded; a machine computes with 32 bits. One sum of products is covered here, a whole network
   in CheckBinary.v. *)
From Coq Require Import Reals Psatz Lia ZArith Bool.
From Flocq Require Import Core BinarySingleNaN.
From Specgrad Require Import RoundingTree RoundingRegion RoundingFormat RoundingFloat32.
Open Scope R_scope.

Definition float32 := binary_float 24 128.
#[local] Instance prec_pos : Prec_gt_0 24 := eq_refl.
#[local] Instance prec_lt : Prec_lt_emax 24 128 := eq_refl.

Inductive program :=
  | Number (x : float32)
  | Negated (a : program)
  | Plus (a b : program)
  | Minus (a b : program)
  | Times (a b : program)
  | MultiplyAdd (a b c : program)
  | Over (a : program) (c : float32).

Fixpoint run (p : program) : float32 :=
  match p with
  | Number x => x
  | Negated a => Bopp (run a)
  | Plus a b => Bplus mode_NE (run a) (run b)
  | Minus a b => Bminus mode_NE (run a) (run b)
  | Times a b => Bmult mode_NE (run a) (run b)
  | MultiplyAdd a b c => Bfma mode_NE (run a) (run b) (run c)
  | Over a c => Bdiv mode_NE (run a) c
  end.

Fixpoint tree_of (p : program) : tree :=
  match p with
  | Number x => Leaf (B2R x)
  | Negated a => Neg (tree_of a)
  | Plus a b => Add (tree_of a) (tree_of b)
  | Minus a b => Sub (tree_of a) (tree_of b)
  | Times a b => Mul (tree_of a) (tree_of b)
  | MultiplyAdd a b c => Fma (tree_of a) (tree_of b) (tree_of c)
  | Over a c => Div (tree_of a) (B2R c) 0
  end.

(* It reads finite numbers, and divides by none that is zero. *)
Fixpoint sound (p : program) : Prop :=
  match p with
  | Number x => is_finite x = true
  | Negated a => sound a
  | Plus a b | Minus a b | Times a b => sound a /\ sound b
  | MultiplyAdd a b c => sound a /\ sound b /\ sound c
  | Over a c => sound a /\ B2R c <> 0
  end.

Local Notation rounded := (round radix2 (SpecFloat.fexp 24 128) (round_mode mode_NE)).

Local Notation limit := (bpow radix2 128).

Lemma rounded_operation x : operation32 x (rounded x).
Proof. apply (operation_wider (-149) 24 True x (-149) 24 (fun n => negb (Z.even n))); lia. Qed.

Lemma formed_0 v : formed u32 0 v v.
Proof. exists 1. simpl. rewrite Rinv_1. lra. Qed.

(* A part of a program stays below what the whole stays below. *)
Ltac inside H := eapply Rle_lt_trans; [|exact H]; apply largest_mono; simpl; lia || nra.

Theorem binary32_executes p : sound p -> largest u32 (tree_of p) < limit ->
  is_finite (run p) = true /\ computed u32 tiny32 operation32 (tree_of p) (B2R (run p)).
Proof.
  pose proof (proj1 u32_range) as Hu.
  assert (Hle : forall t y, computed u32 tiny32 operation32 t y -> largest u32 t < limit ->
    Rlt_bool (Rabs y) limit = true).
  { intros t y C Ht. apply Rlt_bool_true. eapply Rle_lt_trans; [|exact Ht].
    apply (computed_le u32 tiny32 Hu operation32 operation32_near t y C). }
  induction p as [x | a IHa | a IHa b IHb | a IHa b IHb | a IHa b IHb | a IHa b IHb c IHc | a IHa c];
    cbn [sound run tree_of]; intros S Hb;
    repeat match goal with H : _ /\ _ |- _ => destruct H end;
    repeat match goal with IH : sound ?q -> _, H : sound ?q |- _ =>
      specialize (IH H); pose proof (most_ge_1 (tree_of q)); clear H end.
  - split; [assumption | constructor; now left].
  - rewrite is_finite_Bopp, B2R_Bopp. destruct (IHa Hb). split; [assumption | now constructor].
  - assert (Ha : largest u32 (tree_of a) < limit) by inside Hb.
    assert (Hb' : largest u32 (tree_of b) < limit) by inside Hb.
    destruct (IHa Ha) as [Fa Ca], (IHb Hb') as [Fb Cb].
    assert (C : computed u32 tiny32 operation32 (Add (tree_of a) (tree_of b)) (rounded (B2R (run a) + B2R (run b))))
      by (econstructor; eauto using rounded_operation).
    pose proof (Bplus_correct 24 128 _ _ mode_NE _ _ Fa Fb) as E. rewrite (Hle _ _ C Hb) in E.
    destruct E as [-> [-> _]]. auto.
  - assert (Ha : largest u32 (tree_of a) < limit) by inside Hb.
    assert (Hb' : largest u32 (tree_of b) < limit) by inside Hb.
    destruct (IHa Ha) as [Fa Ca], (IHb Hb') as [Fb Cb].
    assert (C : computed u32 tiny32 operation32 (Sub (tree_of a) (tree_of b)) (rounded (B2R (run a) - B2R (run b))))
      by (econstructor; eauto using rounded_operation).
    pose proof (Bminus_correct 24 128 _ _ mode_NE _ _ Fa Fb) as E. rewrite (Hle _ _ C Hb) in E.
    destruct E as [-> [-> _]]. auto.
  - assert (Ha : largest u32 (tree_of a) < limit) by inside Hb.
    assert (Hb' : largest u32 (tree_of b) < limit) by inside Hb.
    destruct (IHa Ha) as [Fa Ca], (IHb Hb') as [Fb Cb].
    assert (C : computed u32 tiny32 operation32 (Mul (tree_of a) (tree_of b)) (rounded (B2R (run a) * B2R (run b))))
      by (econstructor; eauto using rounded_operation).
    pose proof (Bmult_correct 24 128 _ _ mode_NE (run a) (run b)) as E. rewrite (Hle _ _ C Hb) in E.
    destruct E as [-> [-> _]]. rewrite Fa, Fb. auto.
  - assert (Ha : largest u32 (tree_of a) < limit) by inside Hb.
    assert (Hb' : largest u32 (tree_of b) < limit) by inside Hb.
    assert (Hc : largest u32 (tree_of c) < limit) by inside Hb.
    destruct (IHa Ha) as [Fa Ca], (IHb Hb') as [Fb Cb], (IHc Hc) as [Fc Cc].
    assert (C : computed u32 tiny32 operation32 (Fma (tree_of a) (tree_of b) (tree_of c))
      (rounded (B2R (run a) * B2R (run b) + B2R (run c)))) by (econstructor; eauto using rounded_operation).
    pose proof (Bfma_correct 24 128 _ _ mode_NE _ _ _ Fa Fb Fc) as E. cbv zeta in E. rewrite (Hle _ _ C Hb) in E.
    destruct E as [-> [-> _]]. auto.
  - pose proof (divisor_ge (B2R c)).
    assert (Ha : largest u32 (tree_of a) < limit) by inside Hb.
    destruct (IHa Ha) as [Fa Ca].
    assert (C : computed u32 tiny32 operation32 (Div (tree_of a) (B2R c) 0) (rounded (B2R (run a) / B2R c)))
      by (econstructor; eauto using rounded_operation, formed_0).
    pose proof (Bdiv_correct 24 128 _ _ mode_NE (run a) c ltac:(assumption)) as E. rewrite (Hle _ _ C Hb) in E.
    destruct E as [-> [-> _]]. auto.
Qed.

(* What a program of binary32 operations computes, whatever their order. *)
Theorem binary32_error p : sound p -> largest u32 (tree_of p) < limit ->
  is_finite (run p) = true /\
  let t := tree_of p in
  Rabs (B2R (run p) - exact t) <=
    growth (roundings t) u32 * size t + growth (losses t) tiny32 * most t * (1 + u32) ^ roundings t.
Proof.
  intros S Hb. destruct (binary32_executes p S Hb) as [F C]. split; [exact F|].
  apply (any_tree u32 tiny32 (proj1 u32_range) tiny32_range operation32); auto using operation32_near.
Qed.
