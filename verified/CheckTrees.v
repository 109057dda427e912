(* What a runtime may compute for a sum of products: any tree whose expansion is that sum. How far it can be off.

   A tree has exact additions and multiplications, and roundings wherever the runtime rounds: a fused multiply-add is
   Rounded u (Add (Mul a b) c), a product with a rounded reciprocal is Mul a (Rounded u (Constant (1/c))), an operand that is
   flushed is Rounded 0 a, a wider accumulator has roundings with a smaller unit. *)
From Coq Require Import Reals Lra List Permutation.
From Flocq Require Import Core.
From Specgrad Require Import CheckNumber CheckTrie.
Import ListNotations.
Open Scope R_scope.

Definition tiny : R := bpow radix2 (-126).
Lemma tiny_pos : 0 < tiny.
Proof. apply bpow_gt_0. Qed.

Inductive tree :=
  | Constant (c : R)
  | Read (k : key) (v : R)                       (* v: what the runtime holds for cell k; another leaf may hold another *)
  | Add (a b : tree)
  | Mul (a b : tree)
  | Rounded (unit : R) (a : tree).

(* evals t v m: v is a possible result of t; nothing that was rounded on the way exceeds m. *)
Inductive evals : tree -> R -> R -> Prop :=
  | evals_constant c : evals (Constant c) c 0
  | evals_read k v : evals (Read k v) v 0
  | evals_add a b x y m n : evals a x m -> evals b y n -> evals (Add a b) (x + y) (Rmax m n)
  | evals_mul a b x y m n : evals a x m -> evals b y n -> evals (Mul a b) (x * y) (Rmax m n)
  | evals_rounded unit a x m d e : evals a x m -> Rabs d <= unit -> Rabs e <= tiny ->
      evals (Rounded unit a) (x * (1 + d) + e) (Rmax m (Rabs x)).

Fixpoint reads t := match t with Constant _ => [] | Read k v => [(k, v)] | Add a b | Mul a b => reads a ++ reads b | Rounded _ a => reads a end.
Fixpoint units_ok t := match t with Constant _ | Read _ _ => True | Add a b | Mul a b => units_ok a /\ units_ok b | Rounded n a => 0 <= n /\ units_ok a end.

(* The largest products of 1 + unit, and of 1 + tiny, that a monomial meets. *)
Fixpoint growth t := match t with Constant _ | Read _ _ => 1 | Add a b => Rmax (growth a) (growth b) | Mul a b => growth a * growth b | Rounded n a => (1 + n) * growth a end.
Fixpoint losses t := match t with Constant _ | Read _ _ => 1 | Add a b => Rmax (losses a) (losses b) | Mul a b => losses a * losses b | Rounded _ a => (1 + tiny) * losses a end.

(* The tree as a formal sum of monomials: a coefficient, the product of max(1, abs f) of its constants, what it reads. *)
Record monomial := Monomial { coef : R; wide : R; vars : list (key * R) }.
Definition times m n := Monomial (coef m * coef n) (wide m * wide n) (vars m ++ vars n).
Fixpoint expand t : list monomial :=
  match t with
  | Constant c => [Monomial c (Rmax 1 (Rabs c)) []]
  | Read k v => [Monomial 1 1 [(k, v)]]
  | Add a b => expand a ++ expand b
  | Mul a b => flat_map (fun m => map (times m) (expand b)) (expand a)
  | Rounded _ a => expand a
  end.

Fixpoint product (f : R -> R) (l : list (key * R)) := match l with [] => 1 | (_, v) :: l => f v * product f l end.
Definition value_of m := coef m * product (fun v => v) (vars m).
Definition size_of m := Rabs (coef m) * product Rabs (vars m).
Definition width_of m := wide m * product (fun v => Rmax 1 (Rabs v)) (vars m).
Fixpoint sum {A} (f : A -> R) (l : list A) := match l with [] => 0 | x :: l => f x + sum f l end.
Definition exact t := sum value_of (expand t).
Definition magnitude t := sum size_of (expand t).
Definition width t := sum width_of (expand t).

Lemma sum_app {A} (f : A -> R) l m : sum f (l ++ m) = sum f l + sum f m.
Proof. induction l; simpl; lra. Qed.
Lemma sum_permutation {A} (f : A -> R) l m : Permutation l m -> sum f l = sum f m.
Proof. induction 1; simpl; lra. Qed.
Lemma product_app f l m : product f (l ++ m) = product f l * product f m.
Proof. induction l as [|[k v] l IH]; simpl; [ring | rewrite IH; ring]. Qed.
Lemma sum_times f l m : (forall a b, f (times a b) = f a * f b) -> sum f (flat_map (fun a => map (times a) m) l) = sum f l * sum f m.
Proof.
  intros H. assert (G : forall a m, sum f (map (times a) m) = f a * sum f m).
  { intros a n. induction n; simpl; [ring | rewrite IHn, H; ring]. }
  induction l; simpl; [ring | rewrite sum_app, IHl, G; ring].
Qed.
Lemma value_times a b : value_of (times a b) = value_of a * value_of b.
Proof. unfold value_of, times; simpl. rewrite product_app. ring. Qed.
Lemma size_times a b : size_of (times a b) = size_of a * size_of b.
Proof. unfold size_of, times; simpl. rewrite product_app, Rabs_mult. ring. Qed.
Lemma width_times a b : width_of (times a b) = width_of a * width_of b.
Proof. unfold width_of, times; simpl. rewrite product_app. ring. Qed.

Lemma at_least_1 x y : 1 <= x -> 1 <= y -> 1 <= x * y.
Proof. intros. nra. Qed.
Lemma times_right x y : 1 <= x -> 1 <= y -> x <= x * y.
Proof. intros. nra. Qed.
Lemma times_left x y : 1 <= x -> 1 <= y -> y <= x * y.
Proof. intros. nra. Qed.
Lemma product_le_1 x y X Y : 0 <= x <= X -> 0 <= y <= Y -> 0 <= x * y <= X * Y.
Proof. intros. nra. Qed.

Lemma bounds t : 0 <= magnitude t <= width t /\ 1 <= width t /\ Rabs (exact t) <= magnitude t.
Proof.
  unfold magnitude, width, exact.
  induction t as [c | k v | a IHa b IHb | a IHa b IHb | n a IHa]; simpl expand; auto.
  - simpl. unfold size_of, width_of, value_of; simpl. pose proof (Rabs_pos c). pose proof (Rmax_l 1 (Rabs c)). pose proof (Rmax_r 1 (Rabs c)).
    rewrite !Rmult_1_r, !Rplus_0_r. lra.
  - simpl. unfold size_of, width_of, value_of; simpl. pose proof (Rabs_pos v). pose proof (Rmax_l 1 (Rabs v)). pose proof (Rmax_r 1 (Rabs v)).
    rewrite Rabs_R1, !Rmult_1_r, !Rmult_1_l, !Rplus_0_r. lra.
  - rewrite !sum_app. pose proof (Rabs_triang (sum value_of (expand a)) (sum value_of (expand b))). lra.
  - rewrite (sum_times value_of), (sum_times size_of), (sum_times width_of) by auto using value_times, size_times, width_times.
    destruct IHa as [? [? ?]], IHb as [? [? ?]]. split; [now apply product_le_1|]. split; [now apply at_least_1|].
    rewrite Rabs_mult. apply Rmult_le_compat; auto using Rabs_pos.
Qed.

Lemma growth_1 t : units_ok t -> 1 <= growth t.
Proof.
  induction t; simpl; intros; try lra.
  - eapply Rle_trans; [apply IHt1; tauto | apply Rmax_l].
  - apply at_least_1; tauto.
  - apply at_least_1; [lra | tauto].
Qed.
Lemma losses_1 t : 1 <= losses t.
Proof.
  pose proof tiny_pos. induction t; simpl; try lra.
  - eapply Rle_trans; [apply IHt1 | apply Rmax_l].
  - now apply at_least_1.
  - apply at_least_1; lra.
Qed.

(* The error after a growth g and losses s, of a sum of sizes M and widths W. *)
Definition error_of g s M W := (g - 1) * M + (s - 1) * g * W.
Lemma error_mono g s M W g' s' : 1 <= g <= g' -> 1 <= s <= s' -> 0 <= M -> 1 <= W -> error_of g s M W <= error_of g' s' M W.
Proof.
  intros. unfold error_of. apply Rplus_le_compat; [apply Rmult_le_compat_r; lra|].
  apply Rmult_le_compat_r; [lra|]. apply Rmult_le_compat; lra.
Qed.
Lemma most_mono g s W g' s' W' : 1 <= g <= g' -> 1 <= s <= s' -> 1 <= W <= W' -> s * g * W <= s' * g' * W'.
Proof. intros. repeat apply Rmult_le_compat; try lra. apply Rmult_le_pos; lra. Qed.

Theorem any_tree t v m : units_ok t -> evals t v m ->
  Rabs (v - exact t) <= error_of (growth t) (losses t) (magnitude t) (width t) /\ m <= losses t * growth t * width t.
Proof.
  intros U E. revert U. induction E as [c | k v | a b x y m n Ea IHa Eb IHb | a b x y m n Ea IHa Eb IHb | unit a x m d e Ea IHa Hd He]; intros U.
  - pose proof (bounds (Constant c)) as B. split; [|simpl; lra]. unfold exact, value_of, error_of; simpl. rewrite Rmult_1_r, Rplus_0_r.
    rewrite Rminus_diag_eq, Rabs_R0 by auto. lra.
  - pose proof (bounds (Read k v)) as B. split; [|simpl; lra]. unfold exact, value_of, error_of; simpl. rewrite !Rmult_1_r, Rmult_1_l, Rplus_0_r.
    rewrite Rminus_diag_eq, Rabs_R0 by auto. lra.
  - destruct U as [Ua Ub]. destruct (IHa Ua) as [Ha Ma], (IHb Ub) as [Hb Mb].
    pose proof (growth_1 a Ua) as ga. pose proof (growth_1 b Ub) as gb. pose proof (losses_1 a) as la. pose proof (losses_1 b) as lb.
    destruct (bounds a) as [Ba [Wa _]], (bounds b) as [Bb [Wb _]].
    pose proof (Rmax_l (growth a) (growth b)). pose proof (Rmax_r (growth a) (growth b)).
    pose proof (Rmax_l (losses a) (losses b)). pose proof (Rmax_r (losses a) (losses b)).
    assert (Xe : exact (Add a b) = exact a + exact b) by apply sum_app.
    assert (Xm : magnitude (Add a b) = magnitude a + magnitude b) by apply sum_app.
    assert (Xw : width (Add a b) = width a + width b) by apply sum_app.
    rewrite Xe, Xm, Xw. simpl growth. simpl losses. split.
    + replace (x + y - (exact a + exact b)) with ((x - exact a) + (y - exact b)) by ring.
      eapply Rle_trans; [apply Rabs_triang|].
      pose proof (error_mono (growth a) (losses a) (magnitude a) (width a) (Rmax (growth a) (growth b)) (Rmax (losses a) (losses b))).
      pose proof (error_mono (growth b) (losses b) (magnitude b) (width b) (Rmax (growth a) (growth b)) (Rmax (losses a) (losses b))).
      unfold error_of in *. lra.
    + apply Rmax_lub; (eapply Rle_trans; [eassumption | apply most_mono; lra]).
  - destruct U as [Ua Ub]. destruct (IHa Ua) as [Ha Ma], (IHb Ub) as [Hb Mb].
    pose proof (growth_1 a Ua) as ga. pose proof (growth_1 b Ub) as gb. pose proof (losses_1 a) as la. pose proof (losses_1 b) as lb.
    destruct (bounds a) as [Ba [Wa Xa]], (bounds b) as [Bb [Wb Xb]].
    assert (Xe : exact (Mul a b) = exact a * exact b) by (apply sum_times, value_times).
    assert (Xm : magnitude (Mul a b) = magnitude a * magnitude b) by (apply sum_times, size_times).
    assert (Xw : width (Mul a b) = width a * width b) by (apply sum_times, width_times).
    rewrite Xe, Xm, Xw. simpl growth. simpl losses. split.
    + set (A := error_of (growth a) (losses a) (magnitude a) (width a)) in *.
      set (B := error_of (growth b) (losses b) (magnitude b) (width b)) in *.
      replace (x * y - exact a * exact b) with ((x - exact a) * (y - exact b) + (x - exact a) * exact b + exact a * (y - exact b)) by ring.
      assert (H : Rabs ((x - exact a) * (y - exact b) + (x - exact a) * exact b + exact a * (y - exact b)) <= A * B + A * magnitude b + magnitude a * B).
      { eapply Rle_trans; [apply Rabs_triang|]. eapply Rle_trans; [apply Rplus_le_compat_r, Rabs_triang|]. rewrite !Rabs_mult.
        repeat apply Rplus_le_compat; apply Rmult_le_compat; auto using Rabs_pos. }
      eapply Rle_trans; [exact H|]. unfold A, B, error_of.
      set (g := growth a) in *. set (h := growth b) in *. set (s := losses a) in *. set (r := losses b) in *.
      set (M := magnitude a) in *. set (N := magnitude b) in *. set (V := width a) in *. set (W := width b) in *.
      assert (P1 : (g * h) * (r - 1) * (M * W) <= (g * h) * (r - 1) * (V * W)).
      { apply Rmult_le_compat_l; [apply Rmult_le_pos; [apply Rmult_le_pos; lra | lra] | apply Rmult_le_compat_r; lra]. }
      assert (P2 : (g * h) * (s - 1) * (V * N) <= (g * h) * (s - 1) * (V * W)).
      { apply Rmult_le_compat_l; [apply Rmult_le_pos; [apply Rmult_le_pos; lra | lra] | apply Rmult_le_compat_l; lra]. }
      lra.
    + apply Rmax_lub; (eapply Rle_trans; [eassumption | apply most_mono]); split; auto.
      all: first [now apply times_right | now apply times_left].
  - destruct U as [Un Ua]. destruct (IHa Ua) as [Ha Ma]. pose proof (growth_1 a Ua) as ga. pose proof (losses_1 a) as la.
    destruct (bounds a) as [Ba [Wa Xa]]. pose proof tiny_pos as Ht.
    change (exact (Rounded unit a)) with (exact a). change (magnitude (Rounded unit a)) with (magnitude a). change (width (Rounded unit a)) with (width a).
    simpl growth. simpl losses.
    assert (Hx : Rabs x <= magnitude a + error_of (growth a) (losses a) (magnitude a) (width a)).
    { replace x with ((x - exact a) + exact a) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra. }
    set (g := growth a) in *. set (s := losses a) in *. set (M := magnitude a) in *. set (W := width a) in *.
    split.
    + replace (x * (1 + d) + e - exact a) with ((x - exact a) + x * d + e) by ring.
      assert (H : Rabs ((x - exact a) + x * d + e) <= error_of g s M W + Rabs x * unit + tiny).
      { eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; auto. eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; auto.
        rewrite Rabs_mult. apply Rmult_le_compat_l; auto using Rabs_pos. }
      assert (Rabs x * unit <= (M + error_of g s M W) * unit) by (apply Rmult_le_compat_r; lra).
      assert (tiny <= tiny * (s * ((1 + unit) * (g * W)))).
      { rewrite <- Rmult_1_r at 1. apply Rmult_le_compat_l; [lra|]. repeat apply at_least_1; lra. }
      unfold error_of in *. lra.
    + apply Rmax_lub; (eapply Rle_trans; [eassumption|]).
      * apply most_mono; split; try lra; apply times_left; lra.
      * assert (Q : s * g * W <= (1 + tiny) * s * ((1 + unit) * g) * W).
        { apply most_mono; split; try lra; apply times_left; lra. }
        eapply Rle_trans; [|exact Q]. unfold error_of.
        assert (g * M <= g * W) by (apply Rmult_le_compat_l; lra). lra.
Qed.
