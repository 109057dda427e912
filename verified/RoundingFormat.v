(* One operation: what IEEE arithmetic, flushing and wider accumulators make of an exact result is `near` it.

   A format has `prec` significant bits and subnormal numbers down to 2^emin: FLT(emin, prec) of Flocq. binary32 is
   FLT(-149, 24), so u = 2^-24, tiny = 2^-126 and smallest = 2^-149. Ties may be broken in any way. `operation` is
   everything that a runtime may do with one result: round it in the format or a wider one, compute it with more than
   twice the bits and store it, flush it where it is subnormal, before rounding or after. `operation_near` says that
   all of these are `near`, with a loss of t where flushing is allowed and of half the smallest number, a little more
   where it is rounded twice, where it is not; rounded either way, with twice the unit. *)
From Coq Require Import Reals Psatz Lia ZArith.
From Flocq Require Import Core Relative.
From Specgrad Require Import RoundingTree.
Open Scope R_scope.

Definition unit_roundoff (prec : Z) : R := bpow radix2 (- prec).
Definition tiny (emin prec : Z) : R := bpow radix2 (emin + prec - 1).
Definition smallest (emin : Z) : R := bpow radix2 emin.
(* What a rounding can lose where subnormal numbers are kept; rounded twice, u more. *)
Definition kept emin prec : R := / 2 * smallest emin * (1 + unit_roundoff prec).
Definition nearest emin prec choice : R -> R := round radix2 (FLT_exp emin prec) (Znearest choice).

Definition directed emin prec rnd : R -> R := round radix2 (FLT_exp emin prec) rnd.

(* What an operation, with the exact result x, may leave behind.
   operation_wider    a format at least as wide, of which nothing is stored; or the format itself
   operation_stored   a format of more than twice as many bits, stored at once in the format at hand
   operation_flushed  either of them, with a subnormal result, which counts as zero here or where it is read
   operation_tiny     a result that counts as zero because it is subnormal before it is rounded *)
Inductive operation (emin prec : Z) (flush : Prop) (x : R) : R -> Prop :=
  | operation_wider emin' prec' choice : (prec <= prec')%Z -> (emin' + prec' <= emin + prec)%Z ->
      operation emin prec flush x (nearest emin' prec' choice x)
  | operation_stored emin' prec' choice choice' : (2 * prec < prec')%Z -> (emin' + prec' <= emin + prec)%Z ->
      operation emin prec flush x (nearest emin prec choice' (nearest emin' prec' choice x))
  | operation_flushed y : flush -> operation emin prec flush x y -> Rabs y < tiny emin prec ->
      operation emin prec flush x 0
  | operation_tiny : flush -> Rabs x < tiny emin prec -> operation emin prec flush x 0.

(* Rounded either way, any number of times, each time to the format or a wider one. *)
Inductive directed_operation (emin prec : Z) (flush : Prop) (x : R) : R -> Prop :=
  | directed_once emin' prec' rnd : Valid_rnd rnd -> (prec <= prec')%Z -> (emin' + prec' <= emin + prec)%Z ->
      directed_operation emin prec flush x (directed emin' prec' rnd x)
  | directed_again emin' prec' rnd y : Valid_rnd rnd -> (prec <= prec')%Z -> (emin' + prec' <= emin + prec)%Z ->
      directed_operation emin prec flush x y -> directed_operation emin prec flush x (directed emin' prec' rnd y)
  | directed_flushed y : flush -> directed_operation emin prec flush x y -> Rabs y < tiny emin prec ->
      directed_operation emin prec flush x 0
  | directed_tiny : flush -> Rabs x < tiny emin prec -> directed_operation emin prec flush x 0.

Section Format.
Variables emin prec : Z.
Hypothesis prec_pos : (0 < prec)%Z.
Hypothesis one_is_normal : (emin + prec - 1 <= 0)%Z.

Local Notation u := (unit_roundoff prec).

Lemma unit_roundoff_pos p : 0 < unit_roundoff p.
Proof. apply bpow_gt_0. Qed.
Lemma u_ro_is p : u_ro radix2 p = unit_roundoff p.
Proof.
  unfold u_ro, unit_roundoff. change (/ 2) with (bpow radix2 (-1)). rewrite <- bpow_plus. f_equal. lia.
Qed.
Lemma tiny_le_1 : tiny emin prec <= 1.
Proof. unfold tiny. change 1 with (bpow radix2 0). now apply bpow_le. Qed.
Lemma smallest_le_tiny : smallest emin <= tiny emin prec.
Proof. apply bpow_le. lia. Qed.
Lemma tiny_pos : 0 < tiny emin prec.
Proof. apply bpow_gt_0. Qed.
Lemma smallest_pos : 0 < smallest emin.
Proof. apply bpow_gt_0. Qed.
Lemma unit_roundoff_half : u <= / 2.
Proof. change (/ 2) with (bpow radix2 (-1)). apply bpow_le; lia. Qed.
Lemma kept_ge : / 2 * smallest emin <= kept emin prec.
Proof. unfold kept. pose proof smallest_pos; pose proof (unit_roundoff_pos prec). nra. Qed.
Lemma kept_le_tiny : kept emin prec <= tiny emin prec.
Proof. unfold kept. pose proof smallest_pos; pose proof smallest_le_tiny; pose proof unit_roundoff_half. nra. Qed.

(* A nearest number of a wider format. *)
Section Wider.
Variables emin' prec' : Z.
Hypothesis wider_prec : (prec <= prec')%Z.
Hypothesis wider_range : (emin' + prec' <= emin + prec)%Z.
Variable choice : Z -> bool.
Let pos' : Prec_gt_0 prec'.
Proof. unfold Prec_gt_0; lia. Qed.
Existing Instance pos'.

Lemma tiny_in_wider : generic_format radix2 (FLT_exp emin' prec') (tiny emin prec).
Proof. apply generic_format_FLT_bpow; [exact pos' | lia]. Qed.

Lemma nearest_le x : Rabs x <= tiny emin prec -> Rabs (nearest emin' prec' choice x) <= tiny emin prec.
Proof. intros. apply abs_round_le_generic; [apply FLT_exp_valid; exact pos' | apply valid_rnd_N | apply tiny_in_wider
  | assumption]. Qed.
Lemma nearest_ge x : tiny emin prec <= Rabs x -> tiny emin prec <= Rabs (nearest emin' prec' choice x).
Proof. intros. apply abs_round_ge_generic; [apply FLT_exp_valid; exact pos' | apply valid_rnd_N | apply tiny_in_wider
  | assumption]. Qed.

(* The sharp relative error of normal results. *)
Lemma nearest_relative x : tiny emin prec <= Rabs x ->
  exists d, Rabs d <= unit_roundoff prec' / (1 + unit_roundoff prec') /\ nearest emin' prec' choice x = x * (1 + d).
Proof.
  intros Hx. unfold nearest. rewrite round_FLT_FLX.
  - rewrite <- u_ro_is. apply relative_error_N_FLX'_ex. exact pos'.
  - eapply Rle_trans; [|exact Hx]. apply bpow_le. lia.
Qed.

Lemma nearest_error x : exists d e, Rabs d <= unit_roundoff prec' /\ Rabs e <= / 2 * smallest emin' /\
  d * e = 0 /\ nearest emin' prec' choice x = x * (1 + d) + e.
Proof. rewrite <- u_ro_is. apply error_N_FLT. exact pos'. Qed.
End Wider.

Lemma sharp_le p : unit_roundoff p / (1 + unit_roundoff p) <= unit_roundoff p.
Proof.
  pose proof (unit_roundoff_pos p). apply Rmult_le_reg_r with (1 + unit_roundoff p); [lra|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. nra.
Qed.

Lemma wider_near emin' prec' choice x : (prec <= prec')%Z -> (emin' + prec' <= emin + prec)%Z ->
  near u (kept emin prec) x (nearest emin' prec' choice x).
Proof.
  intros Hp Hr. assert (Hu : unit_roundoff prec' <= u) by (apply bpow_le; lia).
  assert (Hs : smallest emin' <= smallest emin) by (apply bpow_le; lia). pose proof kept_ge.
  destruct (Rle_or_lt (tiny emin prec) (Rabs x)) as [Hx | Hx].
  - left. destruct (nearest_relative emin' prec' Hp Hr choice x Hx) as [d [Hd ->]]. pose proof (sharp_le prec').
    replace (x * (1 + d) - x) with (d * x) by ring. rewrite Rabs_mult. apply Rmult_le_compat_r; [apply Rabs_pos | lra].
  - pose proof (nearest_le emin' prec' Hp Hr choice x (Rlt_le _ _ Hx)). pose proof tiny_le_1.
    destruct (nearest_error emin' prec' Hp choice x) as [d [e [Hd [He [Hde Heq]]]]].
    apply Rmult_integral in Hde as [-> | ->].
    + right. split; [|lra]. rewrite Heq. replace (x * (1 + 0) + e - x) with e by ring. lra.
    + left. rewrite Heq. replace (x * (1 + d) + 0 - x) with (d * x) by ring.
      rewrite Rabs_mult. apply Rmult_le_compat_r; [apply Rabs_pos | lra].
Qed.

(* Rounded twice, first to more than twice as many bits: as near as rounded once. *)
Lemma stored_near emin' prec' choice choice' x : (2 * prec < prec')%Z -> (emin' + prec' <= emin + prec)%Z ->
  near u (kept emin prec) x (nearest emin prec choice' (nearest emin' prec' choice x)).
Proof.
  intros Hp Hr. assert (Hp' : (prec <= prec')%Z) by lia. set (u' := unit_roundoff prec').
  pose proof (unit_roundoff_pos prec) as Pu. pose proof (unit_roundoff_pos prec') as Pu'. fold u' in Pu'.
  pose proof unit_roundoff_half as Hu1.
  assert (Hu : u' <= / 2 * (u * u)).
  { unfold u', unit_roundoff. rewrite <- bpow_plus. change (/ 2) with (bpow radix2 (-1)). rewrite <- bpow_plus.
    apply bpow_le. lia. }
  pose proof smallest_pos as Ps. pose proof tiny_pos as Pt. pose proof tiny_le_1.
  destruct (Rle_or_lt (tiny emin prec) (Rabs x)) as [Hx | Hx].
  - left. destruct (nearest_relative emin' prec' Hp' Hr choice x Hx) as [d' [Hd' E']].
    assert (Hy := nearest_ge emin' prec' Hp' Hr choice x Hx).
    destruct (nearest_relative emin prec ltac:(lia) ltac:(lia) choice' _ Hy) as [d [Hd ->]]. rewrite E'. fold u' in Hd'.
    replace (x * (1 + d') * (1 + d) - x) with ((d + d' * (1 + d)) * x) by ring.
    rewrite Rabs_mult. apply Rmult_le_compat_r; [apply Rabs_pos|].
    eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_mult.
    assert (Rabs (1 + d) <= 1 + u / (1 + u)) by (eapply Rle_trans; [apply Rabs_triang|]; rewrite Rabs_R1; lra).
    pose proof (sharp_le prec') as S'. fold u' in S'.
    assert (Rabs d' * Rabs (1 + d) <= u' * (1 + u / (1 + u))) by
      (apply Rmult_le_compat; try apply Rabs_pos; try assumption; lra).
    assert (u / (1 + u) + u' * (1 + u / (1 + u)) <= u); [|lra].
    apply Rmult_le_reg_r with (1 + u); [lra|].
    replace ((u / (1 + u) + u' * (1 + u / (1 + u))) * (1 + u)) with (u + u' * (1 + 2 * u)) by (field; lra). nra.
  - right. set (y' := nearest emin' prec' choice x).
    assert (Hy : Rabs y' <= tiny emin prec) by (apply nearest_le; auto; lra).
    split; [|eapply Rle_trans; [apply nearest_le; auto; lia | lra]].
    destruct (nearest_error emin' prec' Hp' choice x) as [d [e [Hd [He [_ E]]]]]. fold y' in E. fold u' in Hd.
    assert (Hs : smallest emin' <= / 2 * (u * smallest emin)).
    { unfold smallest, unit_roundoff. change (/ 2) with (bpow radix2 (-1)). rewrite <- !bpow_plus. apply bpow_le. lia. }
    assert (Ht : u' * tiny emin prec <= / 4 * (u * smallest emin)).
    { unfold u', unit_roundoff, tiny, smallest. change (/ 4) with (bpow radix2 (-2)).
      rewrite <- !bpow_plus. apply bpow_le. lia. }
    assert (Hyx : Rabs (y' - x) <= / 2 * (u * smallest emin)).
    { rewrite E. replace (x * (1 + d) + e - x) with (d * x + e) by ring. eapply Rle_trans; [apply Rabs_triang|].
      rewrite Rabs_mult. assert (Rabs d * Rabs x <= u' * tiny emin prec) by
        (apply Rmult_le_compat; try apply Rabs_pos; try assumption; lra).
      lra. }
    assert (Hyy : Rabs (nearest emin prec choice' y' - y') <= / 2 * smallest emin).
    { assert (V : Valid_exp (FLT_exp emin prec)) by (apply FLT_exp_valid; exact prec_pos).
      eapply Rle_trans; [apply error_le_half_ulp; exact V|]. rewrite ulp_FLT_small; [apply Rle_refl | exact prec_pos |].
      eapply Rle_lt_trans; [exact Hy|]. apply bpow_lt. lia. }
    replace (nearest emin prec choice' y' - x) with ((nearest emin prec choice' y' - y') + (y' - x)) by ring.
    eapply Rle_trans; [apply Rabs_triang|]. unfold kept. lra.
Qed.

Lemma operation_ge flush x y : operation emin prec flush x y -> tiny emin prec <= Rabs x -> tiny emin prec <= Rabs y.
Proof.
  intros O Hx. induction O.
  - apply nearest_ge; auto.
  - apply nearest_ge; [lia | lia |]. apply nearest_ge; auto; lia.
  - exfalso. apply (Rlt_irrefl (Rabs y)). eapply Rlt_le_trans; [eassumption | auto].
  - exfalso. lra.
Qed.

Lemma near_mono lost lost' x y : lost <= lost' -> near u lost x y -> near u lost' x y.
Proof. intros H [N | [N N']]; [now left | right; split; [lra | assumption]]. Qed.

(* Subnormal numbers kept. *)
Theorem operation_near x y : operation emin prec False x y -> near u (kept emin prec) x y.
Proof. intros O; destruct O; [now apply wider_near | now apply stored_near | contradiction | contradiction]. Qed.

(* Subnormal numbers kept or flushed to zero. *)
Theorem operation_near_flushed flush x y : operation emin prec flush x y -> near u (tiny emin prec) x y.
Proof.
  intros O; destruct O as [? ? ? H H' | ? ? ? ? H H' | y F O H | F H].
  - eapply near_mono; [apply kept_le_tiny | now apply wider_near].
  - eapply near_mono; [apply kept_le_tiny | now apply stored_near].
  - right. rewrite Rminus_0_l, Rabs_Ropp, Rabs_R0. split; [|lra].
    destruct (Rle_or_lt (tiny emin prec) (Rabs x)) as [Hx | Hx]; [|lra].
    pose proof (operation_ge _ _ _ O Hx). lra.
  - right. rewrite Rminus_0_l, Rabs_Ropp, Rabs_R0. lra.
Qed.

(* A constant that stays normal: its rounding counts as one, in a numerator and in a denominator. *)
Theorem formed_operation emin' prec' choice x : (prec <= prec')%Z -> (emin' + prec' <= emin + prec)%Z ->
  tiny emin prec <= Rabs x -> formed u 1 x (nearest emin' prec' choice x).
Proof.
  intros Hp Hr Hx. destruct (nearest_relative emin' prec' Hp Hr choice x Hx) as [d [Hd ->]].
  assert (Hu : unit_roundoff prec' <= u) by (apply bpow_le; lia). pose proof (unit_roundoff_pos prec').
  exists (1 + d). split; [|reflexivity]. rewrite pow_1. set (u' := unit_roundoff prec') in *.
  apply Rabs_le_inv in Hd. pose proof (sharp_le prec') as S'; fold u' in S'.
  assert (I : / (1 + u') = 1 - u' / (1 + u')) by (field; lra). split; [|lra].
  apply Rle_trans with (/ (1 + u')); [apply Rinv_le_contravar; lra | lra].
Qed.
(* A number of the format is not rounded again: adding 0 to it, or storing it twice, changes nothing. *)
Theorem nearest_again choice choice' x : nearest emin prec choice' (nearest emin prec choice x) =
  nearest emin prec choice x.
Proof.
  assert (V : Valid_exp (FLT_exp emin prec)) by (apply FLT_exp_valid; exact prec_pos).
  apply round_generic; [apply valid_rnd_N | apply generic_format_round; [exact V | apply valid_rnd_N]].
Qed.

(* --- rounded either way ------------------------------------------------------------------------------------------ *)

Let down := round radix2 (FLT_exp emin prec) Zfloor.
Let up := round radix2 (FLT_exp emin prec) Zceil.
Let V : Valid_exp (FLT_exp emin prec).
Proof. apply FLT_exp_valid; exact prec_pos. Qed.

Lemma format_in_wider emin' prec' x : (prec <= prec')%Z -> (emin' + prec' <= emin + prec)%Z ->
  generic_format radix2 (FLT_exp emin prec) x -> generic_format radix2 (FLT_exp emin' prec') x.
Proof. intros Hp Hr. apply generic_inclusion_mag. intros _. unfold FLT_exp. lia. Qed.

Lemma directed_between emin' prec' rnd x y : Valid_rnd rnd -> (prec <= prec')%Z -> (emin' + prec' <= emin + prec)%Z ->
  down x <= y <= up x -> down x <= directed emin' prec' rnd y <= up x.
Proof.
  intros Hrnd Hp Hr [H1 H2].
  assert (V' : Valid_exp (FLT_exp emin' prec')) by (apply FLT_exp_valid; unfold Prec_gt_0; lia).
  split; [apply round_ge_generic | apply round_le_generic]; auto; apply format_in_wider; auto;
    apply generic_format_round; auto; [apply valid_rnd_DN | apply valid_rnd_UP].
Qed.

Lemma between_self x : down x <= x <= up x.
Proof.
  destruct (@round_DN_pt radix2 _ V x) as [_ [H1 _]].
  destruct (@round_UP_pt radix2 _ V x) as [_ [H2 _]]. split; assumption.
Qed.

Lemma between_near x y : down x <= y <= up x -> near (2 * u) (smallest emin) x y.
Proof.
  intros Hy. pose proof (between_self x) as Hx. unfold near.
  assert (Hd : Rabs (y - x) <= ulp radix2 (FLT_exp emin prec) x).
  { destruct (@generic_format_EM radix2 _ V x) as [F | F].
    - assert (down x = x) by (apply round_generic; [apply valid_rnd_DN | exact F]).
      assert (up x = x) by (apply round_generic; [apply valid_rnd_UP | exact F]).
      replace (y - x) with 0 by lra. rewrite Rabs_R0. apply ulp_ge_0.
    - pose proof (round_UP_DN_ulp radix2 (FLT_exp emin prec) x F) as U. fold (up x) (down x) in U.
      apply Rabs_le. lra. }
  destruct (Rle_or_lt (tiny emin prec) (Rabs x)) as [Ht | Ht].
  - left. eapply Rle_trans; [exact Hd|]. eapply Rle_trans; [apply ulp_FLT_le; exact Ht|]. rewrite Rmult_comm.
    replace (2 * u) with (bpow radix2 (1 - prec)); [lra|].
    unfold unit_roundoff, Zminus. rewrite bpow_plus. reflexivity.
  - right. pose proof tiny_le_1 as H1. split.
    + rewrite ulp_FLT_small in Hd; [exact Hd | exact prec_pos |]. eapply Rlt_trans; [exact Ht|]. apply bpow_lt; lia.
    + assert (T : generic_format radix2 (FLT_exp emin prec) (tiny emin prec))
        by (apply generic_format_FLT_bpow; [exact prec_pos | lia]).
      assert (D : Rabs (down x) <= tiny emin prec) by (apply abs_round_le_generic; auto; [apply valid_rnd_DN | lra]).
      assert (U : Rabs (up x) <= tiny emin prec) by (apply abs_round_le_generic; auto; [apply valid_rnd_UP | lra]).
      apply Rabs_le_inv in D. apply Rabs_le_inv in U. apply Rabs_le. lra.
Qed.

Lemma directed_ge flush x y : directed_operation emin prec flush x y -> tiny emin prec <= Rabs x -> down x <= y <= up x.
Proof.
  intros O Hx. assert (T : generic_format radix2 (FLT_exp emin prec) (tiny emin prec))
    by (apply generic_format_FLT_bpow; [exact prec_pos | lia]).
  induction O as [emin' prec' rnd Hv Hp Hr | emin' prec' rnd y Hv Hp Hr O IH | y F O IH Hy | F Ht];
    [| | | exfalso; lra].
  - apply directed_between; auto using between_self.
  - apply directed_between; auto.
  - exfalso. destruct (Rle_or_lt 0 x) as [S | S].
    + rewrite Rabs_pos_eq in Hx by exact S.
      assert (tiny emin prec <= down x) by (apply round_ge_generic; auto; apply valid_rnd_DN).
      pose proof tiny_pos. rewrite Rabs_pos_eq in Hy; lra.
    + rewrite Rabs_left in Hx by exact S.
      assert (up x <= - tiny emin prec)
        by (apply round_le_generic; [exact V | apply valid_rnd_UP | apply generic_format_opp; exact T | lra]).
      pose proof tiny_pos. rewrite Rabs_left in Hy; lra.
Qed.

(* Rounded either way, subnormal numbers kept. *)
Theorem directed_operation_near_kept x y : directed_operation emin prec False x y -> near (2 * u) (smallest emin) x y.
Proof.
  intros O. apply between_near. induction O as [emin' prec' rnd Hv Hp Hr | emin' prec' rnd y Hv Hp Hr O IH | |];
    try contradiction.
  - apply directed_between; auto using between_self.
  - apply directed_between; auto.
Qed.

(* Rounded either way, subnormal numbers kept or flushed: twice the unit roundoff. *)
Theorem directed_operation_near flush x y : directed_operation emin prec flush x y -> near (2 * u) (tiny emin prec) x y.
Proof.
  intros O. assert (W : forall z, near (2 * u) (smallest emin) x z -> near (2 * u) (tiny emin prec) x z).
  { pose proof smallest_le_tiny. intros z [N | [N N']]; [now left | right; split; lra]. }
  destruct (Rle_or_lt (tiny emin prec) (Rabs x)) as [Hx | Hx].
  - apply W, between_near. eapply directed_ge; eassumption.
  - assert (D : (down x <= y <= up x) \/ y = 0).
    { clear W. induction O as [emin' prec' rnd Hv Hp Hr | emin' prec' rnd y Hv Hp Hr O IH | y F O IH Hy | F Ht];
        [left | | now right | now right].
      - apply directed_between; auto using between_self.
      - destruct IH as [IH | ->]; [left; now apply directed_between | right].
        apply round_0; exact Hv. }
    destruct D as [D | ->]; [now apply W, between_near|].
    right. rewrite Rminus_0_l, Rabs_Ropp, Rabs_R0. lra.
Qed.
End Format.
