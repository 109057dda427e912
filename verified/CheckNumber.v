(* Numbers of the checker: m * 2^e with whole m and e.

   Sums and products are exact, and comparisons too, so there is no rounding that a proof would have to speak of.
   `down` and `up` shorten a number outward to so many places, which is all that ever makes one less exact, and
   always to the safe side. `real` is what a number means; the lemmas that rewrite it (`autorewrite with real`) carry
   the whole program over to the reals. Every float32 is such a number; a third is not, which is why networks may
   have coefficients that are within a stated distance of it (`blur`, CheckExecution.v). *)
From Coq Require Import Reals ZArith Lia Lra.
From Flocq Require Import Core.
Open Scope R_scope.

Record number := Number { mantissa : Z; exponent : Z }.
Definition real (x : number) : R := IZR (mantissa x) * bpow radix2 (exponent x).

Definition zero := Number 0 0.
Definition one := Number 1 0.
Definition of_Z m := Number m 0.
Definition power e := Number 1 e.

Definition shifted (x : number) (e : Z) : Z := Z.shiftl (mantissa x) (exponent x - e).   (* e <= exponent x *)
Definition add x y :=
  if Z.eqb (mantissa x) 0 then y else if Z.eqb (mantissa y) 0 then x else                    (* as the rest, sooner *)
  if Z.eqb (exponent x) (exponent y) then Number (mantissa x + mantissa y) (exponent x)
  else if Z.leb (exponent x) (exponent y) then Number (mantissa x + shifted y (exponent x)) (exponent x)
  else Number (shifted x (exponent y) + mantissa y) (exponent y).
Definition neg x := Number (- mantissa x) (exponent x).
Definition sub x y := add x (neg y).
Definition mul x y := Number (mantissa x * mantissa y) (exponent x + exponent y).
Definition abs_of x := Number (Z.abs (mantissa x)) (exponent x).
Definition positive x := Z.ltb 0 (mantissa x).                     (* 0 < x *)
Definition negative x := Z.ltb (mantissa x) 0.
Definition at_most x y :=                                          (* x <= y *)
  if Z.eqb (exponent x) (exponent y) then Z.leb (mantissa x) (mantissa y) else Z.leb 0 (mantissa (sub y x)).
Definition larger x y := if at_most x y then y else x.
Definition smaller x y := if at_most x y then x else y.

Definition places := 100%Z.
Definition down x := if Z.leb (- places) (exponent x) then x
  else Number (Z.shiftr (mantissa x) (- places - exponent x)) (- places).
Definition up x := neg (down (neg x)).

Lemma power_pos e : 0 < bpow radix2 e.
Proof. apply bpow_gt_0. Qed.

Lemma shifted_real x e : (e <= exponent x)%Z -> IZR (shifted x e) * bpow radix2 e = real x.
Proof.
  intros H. unfold shifted, real. rewrite Z.shiftl_mul_pow2 by lia. rewrite mult_IZR.
  replace (IZR (2 ^ (exponent x - e))) with (bpow radix2 (exponent x - e)).
  - rewrite Rmult_assoc, <- bpow_plus. do 2 f_equal. lia.
  - rewrite <- IZR_Zpower by lia. reflexivity.
Qed.

Lemma real_zero : real zero = 0.
Proof. unfold real; simpl; lra. Qed.
Lemma real_one : real one = 1.
Proof. unfold real; simpl; lra. Qed.
Lemma real_of_Z m : real (of_Z m) = IZR m.
Proof. unfold real; simpl; lra. Qed.
Lemma real_power e : real (power e) = bpow radix2 e.
Proof. unfold real; simpl; lra. Qed.
Lemma real_add x y : real (add x y) = real x + real y.
Proof.
  unfold add. destruct (Z.eqb_spec (mantissa x) 0) as [Z|_]; [unfold real at 2; rewrite Z; ring|].
  destruct (Z.eqb_spec (mantissa y) 0) as [Z|_]; [unfold real at 3; rewrite Z; ring|].
  destruct (Z.eqb_spec (exponent x) (exponent y)) as [E|_]; [unfold real; simpl; rewrite <- E, plus_IZR; ring|].
  destruct (Z.leb_spec (exponent x) (exponent y)).
  - rewrite <- (shifted_real y (exponent x)) by lia. unfold real at 1 2; simpl. rewrite plus_IZR. ring.
  - rewrite <- (shifted_real x (exponent y)) by lia. unfold real at 1 2; simpl. rewrite plus_IZR. ring.
Qed.
Lemma real_neg x : real (neg x) = - real x.
Proof. unfold real; simpl. rewrite opp_IZR. ring. Qed.
Lemma real_sub x y : real (sub x y) = real x - real y.
Proof. unfold sub. rewrite real_add, real_neg. ring. Qed.
Lemma real_mul x y : real (mul x y) = real x * real y.
Proof. unfold real; simpl. rewrite mult_IZR, bpow_plus. ring. Qed.
Lemma real_abs_of x : real (abs_of x) = Rabs (real x).
Proof. unfold real; simpl. rewrite abs_IZR, Rabs_mult, (Rabs_pos_eq (bpow _ _)); auto. left; apply power_pos. Qed.

Lemma sign_pos x : (0 < mantissa x)%Z -> 0 < real x.
Proof. intros H. apply Rmult_lt_0_compat; [now apply IZR_lt | apply power_pos]. Qed.
Lemma sign_nonneg x : (0 <= mantissa x)%Z -> 0 <= real x.
Proof. intros H. apply Rmult_le_pos; [now apply IZR_le | left; apply power_pos]. Qed.
Lemma positive_real x : positive x = true -> 0 < real x.
Proof. intros H. apply sign_pos. now apply Z.ltb_lt. Qed.
Lemma not_positive x : positive x = false -> real x <= 0.
Proof.
  intros H. apply Z.ltb_ge in H. assert (0 <= real (neg x)) by (apply sign_nonneg; simpl; lia). rewrite real_neg in *.
  lra.
Qed.
Lemma negative_real x : negative x = true -> real x < 0.
Proof.
  intros H. apply Z.ltb_lt in H. assert (0 < real (neg x)) by (apply sign_pos; simpl; lia). rewrite real_neg in *. lra.
Qed.
Lemma not_negative x : negative x = false -> 0 <= real x.
Proof. intros H. apply sign_nonneg. now apply Z.ltb_ge. Qed.
Lemma at_most_real x y : at_most x y = true -> real x <= real y.
Proof.
  unfold at_most. destruct (Z.eqb_spec (exponent x) (exponent y)) as [E|_]; intros H.
  - apply Z.leb_le, IZR_le in H. unfold real. rewrite E. apply Rmult_le_compat_r; auto. left; apply power_pos.
  - apply Z.leb_le, sign_nonneg in H. rewrite real_sub in H. lra.
Qed.
Lemma not_at_most x y : at_most x y = false -> real y < real x.
Proof.
  unfold at_most. destruct (Z.eqb_spec (exponent x) (exponent y)) as [E|_]; intros H; apply Z.leb_gt in H.
  - apply IZR_lt in H. unfold real. rewrite E. apply Rmult_lt_compat_r; auto. apply power_pos.
  - assert (0 < real (neg (sub y x))) by (apply sign_pos; simpl; lia). rewrite real_neg, real_sub in *. lra.
Qed.
Lemma real_larger x y : real (larger x y) = Rmax (real x) (real y).
Proof.
  unfold larger. destruct (at_most x y) eqn:H.
  - apply at_most_real in H. now rewrite Rmax_right.
  - apply not_at_most in H. rewrite Rmax_left; lra.
Qed.
Lemma real_smaller x y : real (smaller x y) = Rmin (real x) (real y).
Proof.
  unfold smaller. destruct (at_most x y) eqn:H.
  - apply at_most_real in H. now rewrite Rmin_left.
  - apply not_at_most in H. rewrite Rmin_right; lra.
Qed.

Lemma down_le x : real (down x) <= real x.
Proof.
  unfold down. destruct (Z.leb_spec (- places) (exponent x)) as [|H]; [lra|].
  set (k := (- places - exponent x)%Z). assert (0 <= k)%Z by (unfold k; lia).
  unfold real; cbn [mantissa exponent]. rewrite Z.shiftr_div_pow2 by auto.
  replace (- places)%Z with (k + exponent x)%Z by (unfold k; lia).
  rewrite bpow_plus, <- Rmult_assoc. apply Rmult_le_compat_r; [left; apply power_pos|].
  rewrite <- (IZR_Zpower radix2) by auto. rewrite <- mult_IZR. apply IZR_le. simpl.
  assert (0 < 2 ^ k)%Z by (apply Z.pow_pos_nonneg; lia). rewrite Z.mul_comm. apply Z.mul_div_le; auto.
Qed.
Lemma up_ge x : real x <= real (up x).
Proof. unfold up. rewrite real_neg. pose proof (down_le (neg x)). rewrite real_neg in *. lra. Qed.

#[export] Hint Rewrite real_zero real_one real_of_Z real_power real_add real_neg real_sub real_mul real_abs_of
  real_larger
  real_smaller : real.
