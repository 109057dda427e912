(* A sum of products, from what is known of its sources: its range, how far it can be off, whether it may overflow.

   The program walks over the products once and adds up six numbers: the least and the greatest of the exact sum, its
   size on absolute values, its width (factors made at least 1, for what underflow loses), how far it is off for what
   its shared products read, and for what the others do. `rounding_error` then is the bound of CheckTrees.v with
   these numbers, and None if a partial sum may be too large. The second half says that each of these is a bound of
   what it is named after, for every execution. *)
From Coq Require Import Reals ZArith List Permutation Lra Lia Bool.
From Flocq Require Import Core.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckExecution.
Import ListNotations.
Open Scope R_scope.

(* --- what the checker computes --- *)
Definition ranges := trie (number * number).       (* ends of the references of cells *)
Definition deviations := trie number.              (* how far values are from their references *)
Record measure := Measure { least : number; most : number; total_size : number; total_width : number; off : number;
  drift : number }.

Definition one_or (x : number) := larger one x.
Section Check.
Variables (facts : ranges) (aparts : deviations).
Fixpoint measured (dim wider : number) (ps : list term) : option measure :=
  match ps with
  | [] => Some (Measure zero zero zero zero zero zero)
  | p :: ps => match measured dim wider ps with
    | None => None
    | Some t => let w := weight p in let a := abs_of w in let b := add a dim in let wide := mul wider (one_or a) in
      match source p with
      | None => Some (Measure (add (least t) w) (add (most t) w) (add (total_size t) b) (add (total_width t) wide)
        (off t) (add (drift t) dim))
      | Some j => match get j facts, get j aparts with
        | Some (l, h), Some d => let big := add (larger (abs_of l) (abs_of h)) d in let far := mul a d in let dims :=
          mul dim big in
          let below := negative w in
          Some (Measure (add (least t) (mul w (if below then h else l))) (add (most t) (mul w (if below then l else h)))
            (add (total_size t) (mul b big)) (add (total_width t) (mul wide (one_or big)))
            (if shared p then add (off t) far else off t) (add (if shared p then drift t else add (drift t) far) dims))
        | _, _ => None
        end
      end
    end
  end.

(* (1+x)^n - 1 <= n*x + 2*(n*x)^2 while n*x <= 1/2 *)
Definition grown (n : Z) (x : number) : option number :=
  let y := mul (of_Z n) x in
  if Z.leb 0 n && at_most y (power (-1)) && negb (negative x) then Some (add y (mul (of_Z 2) (mul y y))) else None.
Definition float32_max := Number (2 ^ 24 - 1) 104.
(* how far any formula of a sum can be from its exact value; None: it may overflow, or has too many roundings *)
Definition rounding_error (unit : number) (s : sums) (t : measure) : option number :=
  match grown (roundings s) unit, grown (4 * roundings s + 4) (power (-126)) with
  | Some g, Some l =>
      let wide := mul (add one g) (total_width t) in
      if at_most (mul (add one l) wide) float32_max then Some (add (mul g (total_size t)) (mul l wide)) else None
  | _, _ => None
  end.
End Check.

(* --- what it means --- *)
Lemma pow_bound x n : 0 <= x -> INR n * x < 1 -> (1 + x) ^ n <= 1 / (1 - INR n * x).
Proof.
  intros Hx. induction n as [|n IH]; intros H; [simpl; unfold Rdiv; rewrite Rmult_0_l, Rminus_0_r, Rinv_1; lra|].
  rewrite S_INR in *. assert (Hn : INR n * x < 1) by lra. specialize (IH Hn).
  pose proof (pos_INR n). assert (0 <= INR n * x) by (apply Rmult_le_pos; lra).
  apply Rmult_le_reg_r with (1 - (INR n + 1) * x); [lra|].
  unfold Rdiv. rewrite Rmult_1_l, Rinv_l by lra. simpl.
  apply Rle_trans with (1 / (1 - INR n * x) * ((1 + x) * (1 - (INR n + 1) * x))).
  - rewrite (Rmult_comm (1 + x)), Rmult_assoc. apply Rmult_le_compat_r; [apply Rmult_le_pos; lra | exact IH].
  - apply Rmult_le_reg_l with (1 - INR n * x); [lra|]. unfold Rdiv.
    rewrite Rmult_1_l, <- Rmult_assoc, Rinv_r, Rmult_1_l, Rmult_1_r by lra. nra.
Qed.
Lemma grown_real n x g : grown n x = Some g -> 0 <= real x /\ 0 <= real g /\ (1 + real x) ^ Z.to_nat n <= 1 + real g.
Proof.
  unfold grown. destruct (Z.leb 0 n) eqn:N; [|discriminate]. destruct (at_most _ _) eqn:B; [|discriminate].
  destruct (negative x) eqn:X; [discriminate|]. simpl. intros [= <-]. apply not_negative in X. apply at_most_real in B.
  apply Z.leb_le in N. autorewrite with real in *. set (y := IZR n * real x) in *.
  assert (Y : 0 <= y) by (apply Rmult_le_pos; [now apply IZR_le | auto]).
  assert (half : bpow radix2 (-1) = / 2) by reflexivity. rewrite half in B.
  split; [auto|]. split; [nra|].
  assert (E : INR (Z.to_nat n) * real x = y) by (unfold y; now rewrite INR_IZR_INZ, Z2Nat.id).
  eapply Rle_trans; [apply pow_bound; [auto | rewrite E; lra]|]. rewrite E.
  apply Rmult_le_reg_r with (1 - y); [lra|]. unfold Rdiv. rewrite Rmult_1_l, Rinv_l by lra. nra.
Qed.

Section Meaning.
Variables (facts : ranges) (aparts : deviations) (ref : key -> R) (holds : key -> R -> Prop).
Hypothesis in_range : forall k l h, get k facts = Some (l, h) -> real l <= ref k <= real h.
Hypothesis deviates : forall k d v, get k aparts = Some d -> holds k v -> Rabs (v - ref k) <= real d.

Fixpoint line (ps : list term) : R :=               (* the sum of the references of its sources *)
  match ps with [] => 0 | p :: ps => real (weight p) * match source p with None => 1 | Some j => ref j end + line ps
    end.
Fixpoint mixed (read : nat -> R) (n : nat) (ps : list term) : R :=   (* of what is read once, where that is shared *)
  match ps with [] => 0 | p :: ps => real (weight p) * match source p with None => 1 | Some j => if shared p then read n
    else ref j end + mixed read (S n) ps end.

Lemma scaled w l h x : l <= x <= h -> w * (if Rlt_dec w 0 then h else l) <= w * x <= w * (if Rlt_dec w 0 then l else h).
Proof. intros H. destruct (Rlt_dec w 0); nra. Qed.
Lemma ends w l h x : real l <= x <= real h ->
  real (mul w (if negative w then h else l)) <= real w * x <= real (mul w (if negative w then l else h)).
Proof.
  intros H. rewrite !real_mul. destruct (negative w) eqn:N; [apply negative_real in N | apply not_negative in N]; nra.
Qed.
Lemma maximum_end l h x : l <= x <= h -> Rabs x <= Rmax (Rabs l) (Rabs h).
Proof. intros H. unfold Rmax, Rabs. repeat destruct Rcase_abs; destruct Rle_dec; lra. Qed.

Lemma measured_line s ps t : measured facts aparts (blur s) (spread s) ps = Some t ->
  real (least t) <= line ps <= real (most t).
Proof.
  revert t. induction ps as [|p ps IH]; simpl; intros t; [intros [= <-]; simpl; rewrite real_zero; lra|].
  destruct (measured _ _ _ _ ps) as [u|]; [|discriminate]. specialize (IH u eq_refl).
  destruct (source p) as [j|]; [|intros [= <-]; simpl; rewrite !real_add; lra].
  destruct (get j facts) as [[l h]|] eqn:F; [|discriminate]. destruct (get j aparts) as [d|]; [|discriminate].
  intros [= <-]; simpl. rewrite !real_add. pose proof (ends (weight p) l h (ref j) (in_range _ _ _ F)). lra.
Qed.

Lemma near_size d x v big : Rabs (v - x) <= d -> Rabs x <= big -> Rabs v <= big + d.
Proof. intros. replace v with ((v - x) + x) by ring. pose proof (Rabs_triang (v - x) x). lra. Qed.
Lemma weighted w d x y : Rabs (x - y) <= d -> Rabs (w * x - w * y) <= Rabs w * d.
Proof. intros. rewrite <- Rmult_minus_distr_l, Rabs_mult. apply Rmult_le_compat_l; auto using Rabs_pos. Qed.

Lemma measured_mixed s read n ps t : measured facts aparts (blur s) (spread s) ps = Some t ->
  (forall i p j, nth_error ps i = Some p -> shared p = true -> source p = Some j -> holds j (read (n + i)%nat)) ->
  Rabs (mixed read n ps - line ps) <= real (off t).
Proof.
  revert n t. induction ps as [|p ps IH]; simpl; intros n t;
    [intros [= <-] _; simpl; rewrite real_zero, Rminus_0_r, Rabs_R0; lra|].
  destruct (measured _ _ _ _ ps) as [u|]; [|discriminate]. intros E H.
  assert (I : Rabs (mixed read (S n) ps - line ps) <= real (off u)).
  { apply IH; auto. intros i q j Hi. replace (S n + i)%nat with (n + S i)%nat by lia. now apply H. }
  destruct (source p) as [j|] eqn:S; [|injection E as <-; simpl; match goal with |- Rabs ?e <= _ => replace e
    with (mixed read (Datatypes.S n) ps - line ps) by ring end; auto].
  destruct (get j facts) as [[l h]|] eqn:F; [|discriminate]. destruct (get j aparts) as [d|] eqn:A; [|discriminate].
  injection E as <-; simpl. destruct (shared p) eqn:P.
  - rewrite real_add, real_mul, real_abs_of.
    assert (V : holds j (read n)) by (replace n with (n + 0)%nat by lia; now apply (H 0%nat p)).
    pose proof (weighted (real (weight p)) (real d) (read n) (ref j) (deviates _ _ _ A V)) as W.
    match goal with |- Rabs ?e <= _ => replace e with
      ((real (weight p) * read n - real (weight p) * ref j) + (mixed read (Datatypes.S n) ps - line ps)) by ring end.
    eapply Rle_trans; [apply Rabs_triang|]. lra.
  - match goal with |- Rabs ?e <= _ => replace e with (mixed read (Datatypes.S n) ps - line ps) by ring end. auto.
Qed.

Lemma blurred c w b x : Rabs (c - w) <= b -> Rabs (c * x - w * x) <= b * Rabs x.
Proof. intros. rewrite <- Rmult_minus_distr_r, Rabs_mult. apply Rmult_le_compat_r; auto using Rabs_pos. Qed.
Lemma blurred_size c w b : Rabs (c - w) <= b -> Rabs c <= Rabs w + b.
Proof. intros. replace c with ((c - w) + w) by ring. pose proof (Rabs_triang (c - w) w). lra. Qed.

Lemma measured_trees s read n ps ms t : measured facts aparts (blur s) (spread s) ps = Some t ->
  0 <= real (spread s) -> 0 <= real (blur s) -> all_match s read n ps ms ->
    (forall m k v, In m ms -> In (k, v) (vars m) -> holds k v) ->
  Rabs (sum_over value_of ms - mixed read n ps) <= real (drift t) /\
  sum_over size_of ms <= real (total_size t) /\ sum_over width_of ms <= real (total_width t).
Proof.
  intros E W Bl. revert n t ms E. induction ps as [|p ps IH]; intros n t [|m ms] E M V; try contradiction.
  { injection E as <-; simpl. rewrite real_zero, Rminus_0_r, Rabs_R0. lra. }
  cbn [all_match] in M. destruct M as [[C [D Q]] M]. cbn [measured] in E.
  destruct (measured _ _ _ _ ps) as [u|]; [|discriminate].
  destruct (IH (S n) u ms eq_refl M) as [I1 [I2 I3]]; [intros; eapply V; [right|]; eauto|]. clear IH.
  cbn [sum_over mixed]. set (rest := sum_over value_of ms - mixed read (S n) ps) in *.
  pose proof (blurred_size _ _ _ C) as Cs.
  destruct (source p) as [j|] eqn:S.
  - destruct Q as [v [Q Same]]. assert (Hv : holds j v) by (apply (V m); [now left | rewrite Q; now left]).
    destruct (get j facts) as [[l h]|] eqn:F; [|discriminate]. destruct (get j aparts) as [d|] eqn:A; [|discriminate].
    injection E as <-; simpl. pose proof (deviates _ _ _ A Hv) as N.
    pose proof (maximum_end _ _ _ (in_range _ _ _ F)) as L.
    pose proof (near_size _ _ _ _ N L) as B.
    assert (X1 : value_of m = coef m * v) by (unfold value_of; rewrite Q; simpl; ring).
    assert (X2 : size_of m = Rabs (coef m) * Rabs v) by (unfold size_of; rewrite Q; simpl; ring).
    assert (X3 : width_of m = wide m * Rmax 1 (Rabs v)) by (unfold width_of; rewrite Q; simpl; ring).
    rewrite X1, X2, X3. unfold one_or. rewrite !real_add. autorewrite with real.
    pose proof (blurred _ _ _ v C) as Cv. pose proof (Rmult_le_compat_l _ _ _ Bl B) as Bb. split; [|split].
    + destruct (shared p) eqn:P.
      * rewrite <- (Same eq_refl). match goal with |- Rabs ?e <= _ => replace e
          with ((coef m * v - real (weight p) * v) + rest) by (unfold rest; ring) end.
        eapply Rle_trans; [apply Rabs_triang|]. lra.
      * rewrite real_add, real_mul, real_abs_of. pose proof (weighted (real (weight p)) _ _ _ N) as X.
        match goal with |- Rabs ?e <= _ => replace e
          with ((coef m * v - real (weight p) * v) + ((real (weight p) * v - real (weight p) * ref j) + rest)) by
          (unfold rest; ring) end.
        eapply Rle_trans; [apply Rabs_triang|]. pose proof
          (Rabs_triang (real (weight p) * v - real (weight p) * ref j) rest). lra.
    + assert (Rabs (coef m) * Rabs v <= (Rabs (real (weight p)) + real (blur s)) *
        (Rmax (Rabs (real l)) (Rabs (real h)) + real d)) by (apply Rmult_le_compat; auto using Rabs_pos). lra.
    + assert (Rmax 1 (Rabs v) <= Rmax 1 (Rmax (Rabs (real l)) (Rabs (real h)) + real d)).
      { apply Rmax_lub; [apply Rmax_l|]. eapply Rle_trans; [exact B | apply Rmax_r]. }
      pose proof (Rmax_l 1 (Rabs v)) as one_v.
      assert (wide m * Rmax 1 (Rabs v) <= real (spread s) * Rmax 1 (Rabs (real (weight p))) * Rmax 1
        (Rmax (Rabs (real l)) (Rabs (real h)) + real d)).
      { apply Rle_trans with (real (spread s) * Rmax 1 (Rabs (real (weight p))) * Rmax 1 (Rabs v)).
        - apply Rmult_le_compat_r; lra.
        - apply Rmult_le_compat_l; auto. apply Rmult_le_pos; auto. pose proof (Rmax_l 1 (Rabs (real (weight p)))). lra.
          }
      lra.
  - injection E as <-; simpl. assert (X1 : value_of m = coef m) by (unfold value_of; rewrite Q; simpl; ring).
    assert (X2 : size_of m = Rabs (coef m)) by (unfold size_of; rewrite Q; simpl; ring).
    assert (X3 : width_of m = wide m) by (unfold width_of; rewrite Q; simpl; ring).
    rewrite X1, X2, X3. unfold one_or. autorewrite with real. split; [|split; lra].
    match goal with |- Rabs ?e <= _ => replace e with ((coef m - real (weight p)) + rest) by (unfold rest; ring) end.
    eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.
End Meaning.
