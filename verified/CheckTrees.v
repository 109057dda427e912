(* What a runtime may compute for a sum of products: any formula that is that sum, multiplied out. How far it can be
   off.

   A formula is a tree of exact additions and multiplications, and roundings wherever the runtime rounds: a fused
   multiply-add is Rounded u (Added (Multiplied a b) c), a product with a rounded reciprocal is Multiplied a (Rounded u
   (Constant (1/c))), an operand that is flushed is Rounded 0 a, a wider accumulator has roundings with a smaller
   unit. *)
From Coq Require Import Reals Lra List Permutation.
From Flocq Require Import Core.
From Specgrad Require Import CheckNumber CheckTrie.
Import ListNotations.
Open Scope R_scope.

Definition least_normal : R := bpow radix2 (-126).
Lemma least_normal_pos : 0 < least_normal.
Proof. apply bpow_gt_0. Qed.

Inductive formula :=
  | Constant (c : R)
  (* v: what the runtime holds for cell k; another leaf may hold another *)
  | Read (k : key) (v : R)
  | Added (a b : formula)
  | Multiplied (a b : formula)
  | Rounded (unit : R) (a : formula).

(* evals t v m: v is a possible result of t; nothing that was rounded on the way exceeds m. *)
Inductive evals : formula -> R -> R -> Prop :=
  | evals_constant c : evals (Constant c) c 0
  | evals_read k v : evals (Read k v) v 0
  | evals_add a b x y m n : evals a x m -> evals b y n -> evals (Added a b) (x + y) (Rmax m n)
  | evals_mul a b x y m n : evals a x m -> evals b y n -> evals (Multiplied a b) (x * y) (Rmax m n)
  | evals_rounded unit a x m d e : evals a x m -> Rabs d <= unit -> Rabs e <= least_normal ->
      evals (Rounded unit a) (x * (1 + d) + e) (Rmax m (Rabs x)).

Fixpoint cells_read t := match t with Constant _ => [] | Read k v => [(k, v)] | Added a b | Multiplied a b =>
  cells_read a ++ cells_read b
  | Rounded _ a => cells_read a end.
Fixpoint units_ok t := match t with Constant _ | Read _ _ => True | Added a b | Multiplied a b => units_ok a /\
  units_ok b
  | Rounded n a => 0 <= n /\ units_ok a end.

(* The largest products of 1 + unit, and of 1 + least_normal, that an addend meets. *)
Fixpoint unit_product t := match t with Constant _ | Read _ _ => 1 | Added a b => Rmax (unit_product a) (unit_product b)
  | Multiplied a b => unit_product a * unit_product b | Rounded n a => (1 + n) * unit_product a end.
Fixpoint loss_product t := match t with Constant _ | Read _ _ => 1 | Added a b => Rmax (loss_product a) (loss_product b)
  | Multiplied a b => loss_product a * loss_product b | Rounded _ a => (1 + least_normal) * loss_product a end.

(* The formula as a formal sum, multiplied out: each addend has a coefficient, the product of max(1, abs f) of its
   constants, what it reads. *)
Record addend := Addend { coef : R; wide : R; vars : list (key * R) }.
Definition times m n := Addend (coef m * coef n) (wide m * wide n) (vars m ++ vars n).
Fixpoint addends t : list addend :=
  match t with
  | Constant c => [Addend c (Rmax 1 (Rabs c)) []]
  | Read k v => [Addend 1 1 [(k, v)]]
  | Added a b => addends a ++ addends b
  | Multiplied a b => flat_map (fun m => map (times m) (addends b)) (addends a)
  | Rounded _ a => addends a
  end.

Fixpoint product (f : R -> R) (l : list (key * R)) := match l with [] => 1 | (_, v) :: l => f v * product f l end.
Definition value_of m := coef m * product (fun v => v) (vars m).
Definition size_of m := Rabs (coef m) * product Rabs (vars m).
Definition width_of m := wide m * product (fun v => Rmax 1 (Rabs v)) (vars m).
Fixpoint sum_over {A} (f : A -> R) (l : list A) := match l with [] => 0 | x :: l => f x + sum_over f l end.
Definition exact_value t := sum_over value_of (addends t).
Definition magnitude t := sum_over size_of (addends t).
Definition width t := sum_over width_of (addends t).

Lemma sum_over_app {A} (f : A -> R) l m : sum_over f (l ++ m) = sum_over f l + sum_over f m.
Proof. induction l; simpl; lra. Qed.
Lemma sum_over_permutation {A} (f : A -> R) l m : Permutation l m -> sum_over f l = sum_over f m.
Proof. induction 1; simpl; lra. Qed.
Lemma product_app f l m : product f (l ++ m) = product f l * product f m.
Proof. induction l as [|[k v] l IH]; simpl; [ring | rewrite IH; ring]. Qed.
Lemma sum_over_times f l m : (forall a b, f (times a b) = f a * f b) ->
  sum_over f (flat_map (fun a => map (times a) m) l) = sum_over f l * sum_over f m.
Proof.
  intros H. assert (G : forall a m, sum_over f (map (times a) m) = f a * sum_over f m).
  { intros a n. induction n; simpl; [ring | rewrite IHn, H; ring]. }
  induction l; simpl; [ring | rewrite sum_over_app, IHl, G; ring].
Qed.
Lemma value_times a b : value_of (times a b) = value_of a * value_of b.
Proof. unfold value_of, times; simpl. rewrite product_app. ring. Qed.
Lemma size_times a b : size_of (times a b) = size_of a * size_of b.
Proof. unfold size_of, times; simpl. rewrite product_app, Rabs_mult. ring. Qed.
Lemma width_times a b : width_of (times a b) = width_of a * width_of b.
Proof. unfold width_of, times; simpl. rewrite product_app. ring. Qed.

Lemma product_at_least_1 x y : 1 <= x -> 1 <= y -> 1 <= x * y.
Proof. intros. nra. Qed.
Lemma times_right x y : 1 <= x -> 1 <= y -> x <= x * y.
Proof. intros. nra. Qed.
Lemma times_left x y : 1 <= x -> 1 <= y -> y <= x * y.
Proof. intros. nra. Qed.
Lemma product_le_1 x y X Y : 0 <= x <= X -> 0 <= y <= Y -> 0 <= x * y <= X * Y.
Proof. intros. nra. Qed.

Lemma bounds t : 0 <= magnitude t <= width t /\ 1 <= width t /\ Rabs (exact_value t) <= magnitude t.
Proof.
  unfold magnitude, width, exact_value.
  induction t as [c | k v | a IHa b IHb | a IHa b IHb | n a IHa]; simpl addends; auto.
  - simpl. unfold size_of, width_of, value_of; simpl. pose proof (Rabs_pos c). pose proof (Rmax_l 1 (Rabs c)).
    pose proof (Rmax_r 1 (Rabs c)).
    rewrite !Rmult_1_r, !Rplus_0_r. lra.
  - simpl. unfold size_of, width_of, value_of; simpl. pose proof (Rabs_pos v). pose proof (Rmax_l 1 (Rabs v)).
    pose proof (Rmax_r 1 (Rabs v)).
    rewrite Rabs_R1, !Rmult_1_r, !Rmult_1_l, !Rplus_0_r. lra.
  - rewrite !sum_over_app. pose proof (Rabs_triang (sum_over value_of (addends a)) (sum_over value_of (addends b))).
    lra.
  - rewrite (sum_over_times value_of), (sum_over_times size_of), (sum_over_times width_of) by auto using value_times,
      size_times,
      width_times.
    destruct IHa as [? [? ?]], IHb as [? [? ?]]. split; [now apply product_le_1|].
    split; [now apply product_at_least_1|].
    rewrite Rabs_mult. apply Rmult_le_compat; auto using Rabs_pos.
Qed.

Lemma unit_product_1 t : units_ok t -> 1 <= unit_product t.
Proof.
  induction t; simpl; intros; try lra.
  - eapply Rle_trans; [apply IHt1; tauto | apply Rmax_l].
  - apply product_at_least_1; tauto.
  - apply product_at_least_1; [lra | tauto].
Qed.
Lemma loss_product_1 t : 1 <= loss_product t.
Proof.
  pose proof least_normal_pos. induction t; simpl; try lra.
  - eapply Rle_trans; [apply IHt1 | apply Rmax_l].
  - now apply product_at_least_1.
  - apply product_at_least_1; lra.
Qed.

(* The error after a growth g and losses s, of a sum of sizes M and widths W. *)
Definition error_of g s M W := (g - 1) * M + (s - 1) * g * W.
Lemma error_mono g s M W g' s' : 1 <= g <= g' -> 1 <= s <= s' -> 0 <= M -> 1 <= W ->
  error_of g s M W <= error_of g' s' M W.
Proof.
  intros. unfold error_of. apply Rplus_le_compat; [apply Rmult_le_compat_r; lra|].
  apply Rmult_le_compat_r; [lra|]. apply Rmult_le_compat; lra.
Qed.
Lemma most_mono g s W g' s' W' : 1 <= g <= g' -> 1 <= s <= s' -> 1 <= W <= W' -> s * g * W <= s' * g' * W'.
Proof. intros. repeat apply Rmult_le_compat; try lra. apply Rmult_le_pos; lra. Qed.

Theorem any_formula t v m : units_ok t -> evals t v m ->
  Rabs (v - exact_value t) <= error_of (unit_product t) (loss_product t) (magnitude t) (width t) /\
    m <= loss_product t * unit_product t * width t.
Proof.
  intros U E. revert U. induction E as [c | k v | a b x y m n Ea IHa Eb IHb | a b x y m n Ea IHa Eb IHb
    | unit a x m d e Ea IHa Hd He]; intros U.
  - pose proof (bounds (Constant c)) as B. split; [|simpl; lra]. unfold exact_value, value_of, error_of; simpl.
    rewrite Rmult_1_r, Rplus_0_r.
    rewrite Rminus_diag_eq, Rabs_R0 by auto. lra.
  - pose proof (bounds (Read k v)) as B. split; [|simpl; lra]. unfold exact_value, value_of, error_of; simpl.
    rewrite !Rmult_1_r, Rmult_1_l, Rplus_0_r.
    rewrite Rminus_diag_eq, Rabs_R0 by auto. lra.
  - destruct U as [Ua Ub]. destruct (IHa Ua) as [Ha Ma], (IHb Ub) as [Hb Mb].
    pose proof (unit_product_1 a Ua) as ga. pose proof (unit_product_1 b Ub) as gb. pose proof (loss_product_1 a) as la.
    pose proof (loss_product_1 b) as lb.
    destruct (bounds a) as [Ba [Wa _]], (bounds b) as [Bb [Wb _]].
    pose proof (Rmax_l (unit_product a) (unit_product b)). pose proof (Rmax_r (unit_product a) (unit_product b)).
    pose proof (Rmax_l (loss_product a) (loss_product b)). pose proof (Rmax_r (loss_product a) (loss_product b)).
    assert (Xe : exact_value (Added a b) = exact_value a + exact_value b) by apply sum_over_app.
    assert (Xm : magnitude (Added a b) = magnitude a + magnitude b) by apply sum_over_app.
    assert (Xw : width (Added a b) = width a + width b) by apply sum_over_app.
    rewrite Xe, Xm, Xw. simpl unit_product. simpl loss_product. split.
    + replace (x + y - (exact_value a + exact_value b)) with ((x - exact_value a) + (y - exact_value b)) by ring.
      eapply Rle_trans; [apply Rabs_triang|].
      pose proof (error_mono (unit_product a) (loss_product a) (magnitude a) (width a)
        (Rmax (unit_product a) (unit_product b))
        (Rmax (loss_product a) (loss_product b))).
      pose proof (error_mono (unit_product b) (loss_product b) (magnitude b) (width b)
        (Rmax (unit_product a) (unit_product b))
        (Rmax (loss_product a) (loss_product b))).
      unfold error_of in *. lra.
    + apply Rmax_lub; (eapply Rle_trans; [eassumption | apply most_mono; lra]).
  - destruct U as [Ua Ub]. destruct (IHa Ua) as [Ha Ma], (IHb Ub) as [Hb Mb].
    pose proof (unit_product_1 a Ua) as ga. pose proof (unit_product_1 b Ub) as gb. pose proof (loss_product_1 a) as la.
    pose proof (loss_product_1 b) as lb.
    destruct (bounds a) as [Ba [Wa Xa]], (bounds b) as [Bb [Wb Xb]].
    assert (Xe : exact_value (Multiplied a b) = exact_value a * exact_value b) by (apply sum_over_times, value_times).
    assert (Xm : magnitude (Multiplied a b) = magnitude a * magnitude b) by (apply sum_over_times, size_times).
    assert (Xw : width (Multiplied a b) = width a * width b) by (apply sum_over_times, width_times).
    rewrite Xe, Xm, Xw. simpl unit_product. simpl loss_product. split.
    + set (A := error_of (unit_product a) (loss_product a) (magnitude a) (width a)) in *.
      set (B := error_of (unit_product b) (loss_product b) (magnitude b) (width b)) in *.
      replace (x * y - exact_value a * exact_value b)
        with ((x - exact_value a) * (y - exact_value b) + (x - exact_value a) * exact_value b +
        exact_value a * (y - exact_value b)) by ring.
      assert (H : Rabs ((x - exact_value a) * (y - exact_value b) + (x - exact_value a) * exact_value b +
        exact_value a * (y - exact_value b)) <= A * B +
        A * magnitude b + magnitude a * B).
      { eapply Rle_trans; [apply Rabs_triang|]. eapply Rle_trans;
          [apply Rplus_le_compat_r, Rabs_triang|]. rewrite !Rabs_mult.
        repeat apply Rplus_le_compat; apply Rmult_le_compat; auto using Rabs_pos. }
      eapply Rle_trans; [exact H|]. unfold A, B, error_of.
      set (g := unit_product a) in *. set (h := unit_product b) in *. set (s := loss_product a) in *.
      set (r := loss_product b) in *.
      set (M := magnitude a) in *. set (N := magnitude b) in *. set (V := width a) in *. set (W := width b) in *.
      assert (P1 : (g * h) * (r - 1) * (M * W) <= (g * h) * (r - 1) * (V * W)).
      { apply Rmult_le_compat_l; [apply Rmult_le_pos; [apply Rmult_le_pos; lra | lra] | apply Rmult_le_compat_r; lra]. }
      assert (P2 : (g * h) * (s - 1) * (V * N) <= (g * h) * (s - 1) * (V * W)).
      { apply Rmult_le_compat_l; [apply Rmult_le_pos; [apply Rmult_le_pos; lra | lra] | apply Rmult_le_compat_l; lra]. }
      lra.
    + apply Rmax_lub; (eapply Rle_trans; [eassumption | apply most_mono]); split; auto.
      all: first [now apply times_right | now apply times_left].
  - destruct U as [Un Ua]. destruct (IHa Ua) as [Ha Ma]. pose proof (unit_product_1 a Ua) as ga.
    pose proof (loss_product_1 a) as la.
    destruct (bounds a) as [Ba [Wa Xa]]. pose proof least_normal_pos as Ht.
    change (exact_value (Rounded unit a)) with (exact_value a). change (magnitude (Rounded unit a)) with (magnitude a).
    change (width (Rounded unit a)) with (width a).
    simpl unit_product. simpl loss_product.
    assert (Hx : Rabs x <= magnitude a + error_of (unit_product a) (loss_product a) (magnitude a) (width a)).
    { replace x with ((x - exact_value a) + exact_value a) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra. }
    set (g := unit_product a) in *. set (s := loss_product a) in *. set (M := magnitude a) in *.
    set (W := width a) in *.
    split.
    + replace (x * (1 + d) + e - exact_value a) with ((x - exact_value a) + x * d + e) by ring.
      assert (H : Rabs ((x - exact_value a) + x * d + e) <= error_of g s M W + Rabs x * unit + least_normal).
      { eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; auto. eapply Rle_trans;
          [apply Rabs_triang|]. apply Rplus_le_compat; auto.
        rewrite Rabs_mult. apply Rmult_le_compat_l; auto using Rabs_pos. }
      assert (Rabs x * unit <= (M + error_of g s M W) * unit) by (apply Rmult_le_compat_r; lra).
      assert (least_normal <= least_normal * (s * ((1 + unit) * (g * W)))).
      { rewrite <- Rmult_1_r at 1. apply Rmult_le_compat_l; [lra|]. repeat apply product_at_least_1; lra. }
      unfold error_of in *. lra.
    + apply Rmax_lub; (eapply Rle_trans; [eassumption|]).
      * apply most_mono; split; try lra; apply times_left; lra.
      * assert (Q : s * g * W <= (1 + least_normal) * s * ((1 + unit) * g) * W).
        { apply most_mono; split; try lra; apply times_left; lra. }
        eapply Rle_trans; [|exact Q]. unfold error_of.
        assert (g * M <= g * W) by (apply Rmult_le_compat_l; lra). lra.
Qed.
