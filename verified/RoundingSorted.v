(* A sum of n terms in any order, with the sharper bound: not all terms can be deep in a tree at once.

   A sum is added up along a binary tree; a term at depth d meets d roundings, and e before. Sorted by size, largest
   first, the terms cost at most what they would if depths were n-1, n-1, n-2, ..., 1: the error is at most

       the sum over k of ((1+u)^(D_k + e) - 1) * |t|_(k)

   and what additions lose to underflow, if they lose anything. For terms of one size that is about half of n roundings
   for each. `selected` says that any c leaves have powers (1+u)^d that add up to at most those of the first c of D;
   `by_parts` makes of it the sum with sizes. *)
From Coq Require Import Reals Psatz Lia List Permutation Sorted.
From Specgrad Require Import RoundingTree RoundingFloat32.
Import ListNotations.
Open Scope R_scope.

Inductive sum_tree := Term (t : R) | Plus (a b : sum_tree).
Fixpoint total (t : sum_tree) : R := match t with Term r => r | Plus a b => total a + total b end.
(* Each term with its depth, of which the root has k. *)
Fixpoint terms (k : nat) (t : sum_tree) : list (nat * R) :=
  match t with Term r => [(k, r)] | Plus a b => terms (S k) a ++ terms (S k) b end.
Definition sizes (t : sum_tree) : list R := map (fun p => Rabs (snd p)) (terms 0 t).
Fixpoint count (t : sum_tree) : nat := match t with Term _ => 1 | Plus a b => count a + count b end.

(* m, m-1, ...: c numbers. *)
Fixpoint falling (m c : nat) : list nat := match c with O => [] | S c => m :: falling (pred m) c end.
(* n-1, n-1, n-2, ..., 1 *)
Definition deepest (n : nat) : list nat := match n with O => [] | S m => m :: falling m m end.

Section Sorted.
Variables u lost : R.
Hypothesis u_nonneg : 0 <= u.
Hypothesis lost_nonneg : 0 <= lost.
Local Notation q := (1 + u).
Let pow_ge_1 n : 1 <= q ^ n := one_le_pow u u_nonneg n.
Let pow_le n m : (n <= m)%nat -> q ^ n <= q ^ m := pow_le_pow u u_nonneg n m.

Definition powers (l : list nat) : R := fold_right (fun d s => q ^ d + s) 0 l.
(* sum of f(depth) * size *)
Definition by_depth (f : nat -> R) (l : list (nat * R)) : R := fold_right (fun p s => f (fst p) * snd p + s) 0 l.

Lemma powers_app l m : powers (l ++ m) = powers l + powers m.
Proof. induction l; simpl; [|rewrite IHl]; ring. Qed.
Lemma powers_perm l m : Permutation l m -> powers l = powers m.
Proof. induction 1; simpl; lra. Qed.
Lemma powers_nonneg l : 0 <= powers l.
Proof. induction l; simpl; [lra|]. pose proof (pow_ge_1 a). lra. Qed.

Lemma falling_mono c : forall m n, (m <= n)%nat -> powers (falling m c) <= powers (falling n c).
Proof.
  induction c; intros m n H; simpl; [lra|]. pose proof (pow_le _ _ H). assert (pred m <= pred n)%nat by lia.
  pose proof (IHc _ _ H1). lra.
Qed.
Lemma falling_app b c : forall m, powers (falling m (b + c)) = powers (falling m b) + powers (falling (m - b) c).
Proof.
  induction b; intros m; simpl; [rewrite Nat.sub_0_r; ring|]. rewrite IHb.
  replace (pred m - b)%nat with (m - S b)%nat by lia. ring.
Qed.
Lemma falling_step c : forall m, (c <= S m)%nat -> q * powers (falling m c) = powers (falling (S m) c).
Proof.
  induction c; intros m H; simpl; [ring|]. destruct m as [|m].
  - replace c with O by lia. simpl. ring.
  - rewrite Rmult_plus_distr_l. simpl pred. rewrite IHc by lia. simpl. ring.
Qed.
Lemma firstn_falling c : forall m n, (c <= n)%nat -> firstn c (falling m n) = falling m c.
Proof. induction c; intros m [|n] H; simpl; try reflexivity; [lia|]. f_equal. apply IHc. lia. Qed.

(* The first c of `deepest n`. *)
Definition most (n c : nat) : R := match c with O => 0 | S c => q ^ (n - 1) + powers (falling (n - 1) c) end.
Lemma most_deepest n c : (c <= n)%nat -> powers (firstn c (deepest n)) = most n c.
Proof.
  destruct c as [|c], n as [|m]; simpl; intros H; try reflexivity; [lia|]. rewrite firstn_falling by lia.
  now rewrite Nat.sub_0_r.
Qed.

Lemma two_powers m n : q ^ m + q ^ n <= q ^ (m + n) + 1.
Proof. rewrite pow_add. pose proof (pow_ge_1 m). pose proof (pow_ge_1 n). nra. Qed.

(* c leaves of one tree and d of the other, one deeper below a new root, are no more than c + d of a tree of both. *)
Lemma most_step l r c d : (1 <= l)%nat -> (1 <= r)%nat -> (c <= l)%nat -> (d <= r)%nat ->
  q * (most l c + most r d) <= most (l + r) (c + d).
Proof.
  assert (alone : forall l r c, (1 <= l)%nat -> (1 <= r)%nat -> (S c <= l)%nat ->
    q * most l (S c) <= most (l + r) (S c)).
  { clear l r c d. intros l r c L K C. unfold most. rewrite Rmult_plus_distr_l, falling_step by lia.
    replace (S (l - 1)) with l by lia. replace (q * q ^ (l - 1)) with (q ^ l) by
      (replace l with (S (l - 1)) at 1 by lia; reflexivity).
    pose proof (pow_le l (l + r - 1) ltac:(lia)). pose proof (falling_mono c l (l + r - 1) ltac:(lia)). lra. }
  intros L K C D. destruct c as [|c], d as [|d].
  - simpl. lra.
  - replace (most l 0) with 0 by reflexivity. rewrite Rplus_0_l, (Nat.add_comm l r), Nat.add_0_l. now apply alone.
  - replace (most r 0) with 0 by reflexivity. rewrite Rplus_0_r, Nat.add_0_r. now apply alone.
  - replace (S c + S d)%nat with (S (c + d + 1)) by lia. unfold most.
    rewrite !falling_app. rewrite !Rmult_plus_distr_l, !falling_step by lia.
    replace (S (l - 1)) with l by lia. replace (S (r - 1)) with r by lia.
    pose proof (falling_mono c l (l + r - 1) ltac:(lia)) as A.
    pose proof (falling_mono d r (l + r - 1 - c) ltac:(lia)) as B.
    pose proof (pow_le 1 (l + r - 1 - (c + d)) ltac:(lia)) as E. rewrite pow_1 in E.
    pose proof (two_powers (l - 1) (r - 1)) as P.
    assert (T : q * q ^ (l - 1 + (r - 1)) = q ^ (l + r - 1)) by
      (replace (l + r - 1)%nat with (S (l - 1 + (r - 1))) by lia; reflexivity).
    assert (Q : q * (q ^ (l - 1) + q ^ (r - 1)) <= q ^ (l + r - 1) + q) by
      (rewrite <- T; replace (q * q ^ (l - 1 + (r - 1)) + q) with (q * (q ^ (l - 1 + (r - 1)) + 1)) by ring;
       apply Rmult_le_compat_l; lra).
    simpl (powers (falling _ 1)). lra.
Qed.

Lemma split_perm {A} (l : list A) : forall r a b, Permutation (l ++ r) (a ++ b) ->
  exists la lb ra rb, Permutation l (la ++ lb) /\ Permutation (la ++ ra) a /\ Permutation (lb ++ rb) b.
Proof.
  induction l as [|x l IH]; intros r a b P.
  - exists [], [], a, b. simpl. auto.
  - assert (I : In x (a ++ b)) by (eapply Permutation_in; [exact P | now left]). apply in_app_iff in I as [I|I];
      apply in_split in I as (c & d & ->).
    + destruct (IH r (c ++ d) b) as (la & lb & ra & rb & L & M & N).
      { apply Permutation_cons_inv with x. eapply perm_trans; [exact P|]. rewrite <- !app_assoc. simpl.
        symmetry. apply Permutation_middle. }
      exists (x :: la), lb, ra, rb. simpl. repeat split; [now constructor | | exact N].
      eapply perm_trans; [now constructor; apply M | apply Permutation_middle].
    + destruct (IH r a (c ++ d)) as (la & lb & ra & rb & L & M & N).
      { apply Permutation_cons_inv with x. eapply perm_trans; [exact P|]. rewrite !app_assoc.
        symmetry. apply Permutation_middle. }
      exists la, (x :: lb), ra, rb. repeat split; [| exact M |].
      * eapply perm_trans; [now constructor; apply L | apply Permutation_middle].
      * simpl. eapply perm_trans; [now constructor; apply N | apply Permutation_middle].
Qed.

Lemma count_pos t : (1 <= count t)%nat.
Proof. induction t; simpl; lia. Qed.
Lemma terms_length t : forall k, length (terms k t) = count t.
Proof. induction t; intros k; simpl; [reflexivity | now rewrite app_length, IHt1, IHt2]. Qed.

(* Any leaves of a tree have powers that add up to at most those of as many of the deepest. *)
Lemma selected t : forall k l r, Permutation (l ++ r) (map fst (terms k t)) ->
  powers l <= q ^ k * most (count t) (length l).
Proof.
  induction t as [x|a IHa b IHb]; intros k l r P.
  - simpl in P. destruct l as [|d l]; [simpl; lra|]. pose proof (Permutation_length P) as E. simpl in E.
    rewrite app_length in E. destruct l; [|simpl in E; lia]. destruct r; [|simpl in E; lia]. simpl in P.
    apply Permutation_length_1 in P. subst d. simpl. lra.
  - simpl in P. rewrite map_app in P. destruct (split_perm l r _ _ P) as (la & lb & ra & rb & L & A & B).
    rewrite (powers_perm _ _ L), powers_app, (Permutation_length L), app_length. simpl count.
    pose proof (IHa (S k) la ra A) as HA. pose proof (IHb (S k) lb rb B) as HB.
    pose proof (Permutation_length A) as LA. pose proof (Permutation_length B) as LB.
    rewrite app_length, map_length, terms_length in LA, LB.
    pose proof (most_step (count a) (count b) (length la) (length lb) (count_pos a) (count_pos b)
      ltac:(lia) ltac:(lia)).
    pose proof (pow_ge_1 k). simpl in HA, HB.
    apply Rle_trans with (q ^ k * (q * (most (count a) (length la) + most (count b) (length lb)))); [lra|].
    apply Rmult_le_compat_l; lra.
Qed.

(* Sums by parts: weights that fall, and sums from the left that never fall below c. *)
Lemma by_parts (zs ws : list R) : forall W c, 0 <= c -> length zs = length ws ->
  (forall k, 0 <= c + fold_right Rplus 0 (firstn k zs)) -> StronglySorted Rge (W :: ws) -> Forall (Rle 0) (W :: ws) ->
  0 <= c * W + fold_right (fun p s => fst p * snd p + s) 0 (combine zs ws).
Proof.
  revert ws. induction zs as [|z zs IH]; intros [|w ws] W c C E P S N; simpl in E; try lia; simpl.
  - inversion N. nra.
  - inversion S as [|? ? S' F]; subst. inversion F as [|? ? G _]; subst. inversion N as [|? ? W0 N']; subst.
    pose proof (P 1%nat) as P1. simpl in P1.
    assert (H : 0 <= (c + z) * w + fold_right (fun p s => fst p * snd p + s) 0 (combine zs ws)).
    { apply IH; [lra | lia | | exact S' | exact N']. intros k. pose proof (P (Datatypes.S k)) as Q. simpl in Q. lra. }
    apply Rge_le in G. assert (c * w <= c * W) by (apply Rmult_le_compat_l; lra). lra.
Qed.

(* --- the bound ------------------------------------------------------------------------------------------------- *)

(* The error that n terms of these sizes, largest first, can have in any tree, each with e roundings before. *)
Definition sorted_bound (e : nat) (ws : list R) : R :=
  by_depth (fun d => growth (d + e) u) (combine (deepest (length ws)) ws).
Definition depth_bound (e : nat) (k : nat) (t : sum_tree) : R :=
  by_depth (fun d => growth (d + e) u) (map (fun p => (fst p, Rabs (snd p))) (terms k t)).

Lemma by_depth_app f l m : by_depth f (l ++ m) = by_depth f l + by_depth f m.
Proof. induction l; simpl; [|rewrite IHl]; ring. Qed.
Lemma by_depth_perm f l m : Permutation l m -> by_depth f l = by_depth f m.
Proof. induction 1; simpl; lra. Qed.
Lemma falling_length c : forall m, length (falling m c) = c.
Proof. induction c; intros m; simpl; [reflexivity | now rewrite IHc]. Qed.
Lemma deepest_length n : length (deepest n) = n.
Proof. destruct n; simpl; [reflexivity | now rewrite falling_length]. Qed.

Definition gaps (ds es : list nat) : list R := map (fun p => q ^ fst p - q ^ snd p) (combine ds es).
Lemma gaps_by_depth e : forall ds es ws, length ds = length ws -> length es = length ws ->
  by_depth (fun d => growth (d + e) u) (combine ds ws) - by_depth (fun d => growth (d + e) u) (combine es ws) =
  q ^ e * fold_right (fun p s => fst p * snd p + s) 0 (combine (gaps ds es) ws).
Proof.
  unfold growth. induction ds as [|d ds IH]; intros [|f es] [|w ws] A B; simpl in A, B; try lia; simpl; [ring|].
  pose proof (IH es ws ltac:(lia) ltac:(lia)) as H. unfold gaps in H. rewrite !pow_add. lra.
Qed.
Lemma gaps_prefix k : forall ds es, length ds = length es ->
  fold_right Rplus 0 (firstn k (gaps ds es)) = powers (firstn k ds) - powers (firstn k es).
Proof.
  induction k; intros [|d ds] [|f es] E; simpl in E; try lia; simpl; try ring.
  pose proof (IHk ds es ltac:(lia)) as H. unfold gaps in H. rewrite H. ring.
Qed.

(* Whatever the tree: no more than with the largest terms deepest. *)
Theorem depths_sorted e t ws : Permutation ws (sizes t) -> StronglySorted Rge ws ->
  depth_bound e 0 t <= sorted_bound e ws.
Proof.
  intros P S. unfold sizes in P. destruct (Permutation_map_inv _ _ P) as (ps & -> & Q). clear P.
  set (ws := map (fun p => Rabs (snd p)) ps) in *. set (ds := map fst ps).
  assert (C : map (fun p => (fst p, Rabs (snd p))) ps = combine ds ws).
  { subst ws ds. clear. induction ps; simpl; congruence. }
  unfold depth_bound. rewrite (by_depth_perm _ _ _ (Permutation_map _ Q)), C. unfold sorted_bound.
  assert (N : length ws = count t) by (unfold ws; rewrite map_length, <- (Permutation_length Q); apply terms_length).
  assert (M : length ds = length ws) by (unfold ds, ws; now rewrite !map_length).
  pose proof (gaps_by_depth e (deepest (length ws)) ds ws (deepest_length _) M) as G.
  assert (T : 0 <= 0 * hd 0 ws +
    fold_right (fun p s => fst p * snd p + s) 0 (combine (gaps (deepest (length ws)) ds) ws)).
  { apply by_parts.
    - lra.
    - unfold gaps. rewrite map_length, combine_length, deepest_length. lia.
    - intros k. rewrite gaps_prefix by (now rewrite deepest_length). set (c := length (firstn k ds)).
      assert (K : firstn k (deepest (length ws)) = firstn c (deepest (length ws))).
      { subst c. rewrite firstn_length. destruct (Nat.le_gt_cases k (length ds)).
        - now rewrite Nat.min_l.
        - rewrite Nat.min_r, !firstn_all2 by (rewrite ?deepest_length; lia). reflexivity. }
      rewrite K, most_deepest by (subst c; rewrite firstn_length; lia).
      assert (L : Permutation (firstn k ds ++ skipn k ds) (map fst (terms 0 t))).
      { rewrite firstn_skipn. unfold ds. now apply Permutation_map, Permutation_sym. }
      pose proof (selected t 0 _ _ L) as H. simpl in H. rewrite N. fold c in H. lra.
    - destruct ws as [|w ws']; simpl; constructor; try assumption; constructor; [lra|].
      now inversion S.
    - assert (W : Forall (Rle 0) ws) by (unfold ws; apply Forall_forall; intros w I; apply in_map_iff in I;
        destruct I as (p & <- & _); apply Rabs_pos).
      destruct ws as [|w ws']; constructor; try assumption; [simpl; lra | now inversion W]. }
  pose proof (pow_ge_1 e). nra.
Qed.

(* No wider than the bound of all sums, in which every term meets n - 1 additions. *)
Theorem sorted_le_plain e ws : Forall (Rle 0) ws ->
  sorted_bound e ws <= growth (length ws - 1 + e) u * fold_right Rplus 0 ws.
Proof.
  unfold sorted_bound. intros N. assert (D : Forall (fun d => (d <= length ws - 1)%nat) (deepest (length ws))).
  { assert (H : forall c m, Forall (fun d => (d <= m)%nat) (falling m c)).
    { induction c; intros m; simpl; constructor; [lia|]. eapply Forall_impl; [|apply IHc]. simpl. intros; lia. }
    destruct (length ws) as [|m]; simpl; constructor; [lia|]. rewrite Nat.sub_0_r. apply H. }
  revert D. generalize (deepest (length ws)) as ds. generalize (length ws - 1)%nat as m.
  pose proof (fun m => growth_nonneg u u_nonneg m) as G.
  induction N as [|w ws W N IH]; intros m [|d ds] D; simpl; try lra.
  - pose proof (G (m + e)%nat). assert (0 <= fold_right Rplus 0 ws) by (clear - N; induction N; simpl; lra). nra.
  - inversion_clear D as [|? ? D1 D2]. pose proof (IH m ds D2).
    pose proof (growth_mono u u_nonneg (d + e) (m + e) ltac:(lia)). nra.
Qed.

(* Executions: a term is read with e roundings; an addition is one operation. *)
Variable operation : R -> R -> Prop.
Inductive summed (e : nat) : sum_tree -> R -> Prop :=
  | summed_term r x : Rabs (x - r) <= growth e u * Rabs r -> summed e (Term r) x
  | summed_plus a b x y z : summed e a x -> summed e b y -> operation (x + y) z -> summed e (Plus a b) z.
Hypothesis operation_near : forall x z, operation x z -> near u lost x z.

Definition absolute (k : nat) (t : sum_tree) : R :=
  by_depth (fun _ => 1) (map (fun p => (fst p, Rabs (snd p))) (terms k t)).
Lemma absolute_same t : forall j k, absolute j t = absolute k t.
Proof.
  unfold absolute. induction t; intros j k; simpl; [reflexivity|]. rewrite !map_app, !by_depth_app.
  now rewrite (IHt1 (S j) (S k)), (IHt2 (S j) (S k)).
Qed.
Lemma total_le t : Rabs (total t) <= absolute 0 t.
Proof.
  induction t as [r|a IHa b IHb]; [unfold absolute; simpl; lra|]. unfold absolute in *. simpl.
  rewrite map_app, by_depth_app.
  fold (absolute 1 a) (absolute 1 b). rewrite (absolute_same a 1 0), (absolute_same b 1 0). unfold absolute.
  eapply Rle_trans; [apply Rabs_triang | lra].
Qed.
Lemma deeper e t : forall k, q * depth_bound e k t + u * absolute k t = depth_bound e (S k) t.
Proof.
  unfold depth_bound, absolute, growth. induction t as [r|a IHa b IHb]; intros k; simpl; [ring|].
  rewrite !map_app, !by_depth_app, <- (IHa (S k)), <- (IHb (S k)). ring.
Qed.
Definition slips (t : sum_tree) : R := INR (count t) * lost * q ^ count t.

Lemma summed_error e t y : summed e t y -> Rabs (y - total t) <= depth_bound e 0 t + slips t - lost * q ^ count t.
Proof.
  induction 1 as [r x H | a b x y z A IHa B IHb N].
  - unfold depth_bound, slips. simpl. simpl in H. lra.
  - assert (D : depth_bound e 0 (Plus a b) =
      q * (depth_bound e 0 a + depth_bound e 0 b) + u * (absolute 0 a + absolute 0 b)).
    { unfold depth_bound at 1. simpl. rewrite map_app, by_depth_app. fold (depth_bound e 1 a) (depth_bound e 1 b).
      rewrite <- !deeper. ring. }
    rewrite D. simpl total. pose proof (total_le a). pose proof (total_le b).
    assert (Z : Rabs (z - (x + y)) <= u * Rabs (x + y) + lost).
    { pose proof (Rabs_pos (x + y)). destruct (operation_near _ _ N) as [M | [M _]]; nra. }
    set (ea := Rabs (x - total a)) in *. set (eb := Rabs (y - total b)) in *.
    assert (S1 : Rabs (x + y) <= absolute 0 a + absolute 0 b + ea + eb).
    { replace (x + y) with ((x - total a) + (y - total b) + (total a + total b)) by ring.
      eapply Rle_trans; [apply Rabs_triang|]. pose proof (Rabs_triang (x - total a) (y - total b)).
      pose proof (Rabs_triang (total a) (total b)). unfold ea, eb. lra. }
    assert (S2 : Rabs (z - (total a + total b)) <= Rabs (z - (x + y)) + ea + eb).
    { replace (z - (total a + total b)) with ((z - (x + y)) + ((x - total a) + (y - total b))) by ring.
      eapply Rle_trans; [apply Rabs_triang|]. pose proof (Rabs_triang (x - total a) (y - total b)).
      unfold ea, eb. lra. }
    assert (S3 : u * Rabs (x + y) <= u * (absolute 0 a + absolute 0 b + ea + eb)) by (apply Rmult_le_compat_l; lra).
    assert (S4 : q * (ea + eb) <= q * (depth_bound e 0 a + (slips a - lost * q ^ count a) +
      (depth_bound e 0 b + (slips b - lost * q ^ count b)))) by (apply Rmult_le_compat_l; lra).
    assert (L : q * (slips a - lost * q ^ count a + (slips b - lost * q ^ count b)) + lost <=
      slips (Plus a b) - lost * q ^ count (Plus a b)).
    { unfold slips. simpl count. set (m := count a). set (n := count b). rewrite plus_INR.
      pose proof (count_pos a) as Pa. pose proof (count_pos b) as Pb. fold m in Pa. fold n in Pb.
      assert (Ia : 1 <= INR m) by (apply (le_INR 1); lia). assert (Ib : 1 <= INR n) by (apply (le_INR 1); lia).
      assert (Qa : q * q ^ m <= q ^ (m + n)) by (change (q * q ^ m) with (q ^ S m); apply pow_le; lia).
      assert (Qb : q * q ^ n <= q ^ (m + n)) by (change (q * q ^ n) with (q ^ S n); apply pow_le; lia).
      pose proof (pow_ge_1 (m + n)) as O.
      assert (Xa : (INR m - 1) * lost * (q * q ^ m) <= (INR m - 1) * lost * q ^ (m + n)) by
        (apply Rmult_le_compat_l; [apply Rmult_le_pos; lra | assumption]).
      assert (Xb : (INR n - 1) * lost * (q * q ^ n) <= (INR n - 1) * lost * q ^ (m + n)) by
        (apply Rmult_le_compat_l; [apply Rmult_le_pos; lra | assumption]).
      assert (lost * 1 <= lost * q ^ (m + n)) by (apply Rmult_le_compat_l; lra). lra. }
    lra.
Qed.

(* Any order: what is computed is off by at most the bound of the sizes in falling order, and n losses. *)
Theorem sorted_depths e t y ws : summed e t y -> Permutation ws (sizes t) -> StronglySorted Rge ws ->
  Rabs (y - total t) <= sorted_bound e ws + INR (length ws) * lost * q ^ length ws.
Proof.
  intros H P S. pose proof (summed_error e t y H) as E. pose proof (depths_sorted e t ws P S) as D.
  assert (N : length ws = count t).
  { rewrite (Permutation_length P). unfold sizes. rewrite map_length. apply terms_length. }
  rewrite N. unfold slips in E. pose proof (pow_ge_1 (count t)) as O.
  assert (0 <= lost * q ^ count t) by (apply Rmult_le_pos; lra). lra.
Qed.

Lemma sorted_more e j : forall ds ws, length ds = length ws ->
  q ^ j * by_depth (fun d => growth (d + e) u) (combine ds ws) + growth j u * fold_right Rplus 0 ws =
  by_depth (fun d => growth (d + (e + j)) u) (combine ds ws).
Proof.
  unfold growth. induction ds as [|d ds IH]; intros [|w ws] E; simpl in E; try lia; simpl; [ring|].
  rewrite <- (IH ws) by lia. rewrite !pow_add. ring.
Qed.
Lemma sizes_total t ws : Permutation ws (sizes t) -> fold_right Rplus 0 ws = absolute 0 t.
Proof.
  assert (P : forall l m, Permutation l m -> fold_right Rplus 0 l = fold_right Rplus 0 m) by (induction 1; simpl; lra).
  intros Q. rewrite (P _ _ Q). unfold sizes, absolute. generalize (terms 0 t). clear.
  induction l; simpl; [|rewrite IHl]; ring.
Qed.
(* The same where j roundings follow, as a mean's two: the divisor's reciprocal, and the product. *)
Theorem sorted_after e j t y z ws : summed e t y -> Permutation ws (sizes t) -> StronglySorted Rge ws ->
  Rabs (z - y) <= growth j u * Rabs y ->
  Rabs (z - total t) <= sorted_bound (e + j) ws + q ^ j * (INR (length ws) * lost * q ^ length ws).
Proof.
  intros H P S Z. pose proof (sorted_depths e t y ws H P S) as E.
  unfold sorted_bound in *. rewrite <- sorted_more by apply deepest_length. rewrite (sizes_total t ws P).
  pose proof (total_le t) as T. pose proof (growth_nonneg u u_nonneg j) as G.
  set (c := INR (length ws) * lost * _) in *.
  assert (Y : Rabs y <= Rabs (y - total t) + Rabs (total t)).
  { replace y with ((y - total t) + total t) at 1 by ring. apply Rabs_triang. }
  assert (W : Rabs (z - total t) <= Rabs (z - y) + Rabs (y - total t)).
  { replace (z - total t) with ((z - y) + (y - total t)) by ring. apply Rabs_triang. }
  assert (growth j u * Rabs y <= growth j u * (Rabs (y - total t) + absolute 0 t)) by (apply Rmult_le_compat_l; lra).
  assert (q ^ j * Rabs (y - total t) <=
    q ^ j * (by_depth (fun d => growth (d + e) u) (combine (deepest (length ws)) ws) + c)) by
    (apply Rmult_le_compat_l; [apply Rle_trans with 1; [lra | apply pow_ge_1] | exact E]).
  unfold growth in *. lra.
Qed.
End Sorted.

(* Of binary32, subnormal numbers flushed or not: to nearest, and rounded either way. *)
Theorem float32_sorted e t y ws : summed u32 operation32 e t y -> Permutation ws (sizes t) -> StronglySorted Rge ws ->
  Rabs (y - total t) <= sorted_bound u32 e ws + INR (length ws) * tiny32 * (1 + u32) ^ length ws.
Proof. apply sorted_depths; [apply u32_range | apply tiny32_range | apply operation32_near]. Qed.
Theorem float32_sorted_directed e t y ws : summed (2 * u32) directed32 e t y -> Permutation ws (sizes t) ->
  StronglySorted Rge ws ->
  Rabs (y - total t) <= sorted_bound (2 * u32) e ws + INR (length ws) * tiny32 * (1 + 2 * u32) ^ length ws.
Proof. apply sorted_depths; [pose proof u32_range; lra | apply tiny32_range | apply directed32_near]. Qed.
