(* Functions of one cell that are straight between kinks (clamp, relu6, leaky_relu, abs): lines below and above them
   for any slopes, and how steep they are on a range.

   Such a function is a start, a rise, and turns: f(x) = start + rise * x + the sum of turn * max(0, x - kink). On a
   range a line with any slope lies below it if it does so at the ends and at the kinks inside, since it is straight
   between: so the constant of the line is the least of finitely many numbers, and no hint about slopes can make it
   wrong. How steep it is bounds how far two values of it are apart, where the cell that it reads is off. *)
From Coq Require Import Reals ZArith List Lra Bool.
From Specgrad Require Import CheckNumber.
Import ListNotations.
Open Scope R_scope.

(* f(x) = start + rise * x + the sum of turn * max(0, x - kink).
   relative, absolute   a runtime that reads v has f(v) up to relative * abs v + absolute: its numbers are rounded, or
   flushed *)
Record bent := Bent { start : number; rise : number; turns : list (number * number); relative : number;
  absolute : number }.
Fixpoint turned (ts : list (number * number)) (x : R) : R :=
  match ts with [] => 0 | (k, w) :: ts => real w * Rmax 0 (x - real k) + turned ts x end.
Definition bent_at (f : bent) (x : R) : R := real (start f) + real (rise f) * x + turned (turns f) x.

(* --- the program --- *)
Fixpoint turned_number (ts : list (number * number)) (x : number) : number :=
  match ts with [] => zero | (k, w) :: ts => add (mul w (larger zero (sub x k))) (turned_number ts x) end.
Definition height (f : bent) (s x : number) : number :=              (* f(x) - s*x *)
  add (start f) (add (mul (sub (rise f) s) x) (turned_number (turns f) x)).
Definition points (ts : list (number * number)) (l h : number) : list number :=
  l :: h :: filter (fun k => at_most l k && at_most k h) (map fst ts).
Definition lowest (f : bent) (s l h : number) : number :=
  fold_left smaller (map (height f s) (points (turns f) l h)) (height f s l).
Definition opposite (f : bent) : bent :=
  Bent (neg (start f)) (neg (rise f)) (map (fun t => (fst t, neg (snd t))) (turns f)) (relative f) (absolute f).
Definition highest (f : bent) (s l h : number) : number := neg (lowest (opposite f) (neg s) l h).

(* The largest slope on a..b, by absolute value. now: that behind the kinks so far, which are in order *)
Fixpoint in_order (ts : list (number * number)) : bool :=
  match ts with [] => true | (k, _) :: ts => forallb (fun t => at_most k (fst t)) ts && in_order ts end.
Fixpoint steep_on (a b : number) (ts : list (number * number)) (now most : number) : number :=
  match ts with
  | [] => most
  | (k, w) :: ts => let now := add now w in
    steep_on a b ts now (if at_most b k then most else if at_most k a then abs_of now else larger most (abs_of now))
  end.
Definition steepest (f : bent) (a b : number) : number := steep_on a b (turns f) (rise f) (abs_of (rise f)).

(* The line that is best at the middle, of those with no slope, the chord's and the function's own: any slope will
   do. *)
Fixpoint own_slopes (ts : list (number * number)) (now : number) : list number :=
  now :: match ts with [] => [] | (_, w) :: ts => own_slopes ts (add now w) end.
Definition chord (f : bent) (l h : number) : number :=
  let d := sub h l in let y := sub (height f zero h) (height f zero l) in let e := Z.min (exponent y) (exponent d) in
  Number (Z.div (Z.shiftl (shifted y e) 24) (shifted d e)) (-24).
Definition best_below (f : bent) (l h : number) : number :=
  let middle := mul (power (-1)) (add l h) in
  let at_middle := fun s => add (mul s middle) (lowest f s l h) in
  fst (fold_left (fun b s => let y := at_middle s in if at_most y (snd b) then b else (s, y))
    (chord f l h :: own_slopes (turns f) (rise f)) (zero, at_middle zero)).
(* slope and constant of a line below f where a is not negative, else above *)
Definition bent_line (f : bent) (a l h : number) (given : option (list number * list number)) : number * number :=
  if negative a then
    let s := match given with Some (_, s :: _) => s | _ => neg (best_below (opposite f) l h) end in (s, highest f s l h)
  else
    let s := match given with Some (s :: _, _) => s | _ => best_below f l h end in (s, lowest f s l h).

(* --- what it means --- *)
Lemma turned_number_real ts x : real (turned_number ts x) = turned ts (real x).
Proof. induction ts as [|[k w] ts IH]; simpl; autorewrite with real; [auto | now rewrite IH]. Qed.
Lemma height_real f s x : real (height f s x) = bent_at f (real x) - real s * real x.
Proof. unfold height, bent_at. autorewrite with real. rewrite turned_number_real. ring. Qed.

(* Two neighbours among the points: no kink lies between them. *)
Lemma neighbours ts l h x : real l <= x <= real h -> exists p q, In p (points ts l h) /\ In q (points ts l h) /\
  real p <= x <= real q /\
  real l <= real p /\ real q <= real h /\ forall k w, In (k, w) ts -> real k <= real p \/ real q <= real k.
Proof.
  intros X. induction ts as [|[k w] ts [p [q [P [Q [B [L [H N]]]]]]]].
  { exists l, h. simpl. repeat split; auto; try lra. tauto. }
  assert (Old : forall z, In z (points ts l h) -> In z (points ((k, w) :: ts) l h)).
  { intros z [E|[E|I]]; [now left | now right; left|]. right; right. simpl. destruct (at_most l k && at_most k h);
      [now right | auto]. }
  destruct (at_most l k) eqn:A; [apply at_most_real in A | apply not_at_most in A].
  2: { exists p, q. do 5 (split; auto). intros j v [[= <- <-]|I]; [left; lra | eauto]. }
  destruct (at_most k h) eqn:C; [apply at_most_real in C | apply not_at_most in C].
  2: { exists p, q. do 5 (split; auto). intros j v [[= <- <-]|I]; [right; lra | eauto]. }
  assert (K : In k (points ((k, w) :: ts) l h)).
  { right; right. simpl. destruct (at_most l k) eqn:A1; [|apply not_at_most in A1; lra]. destruct (at_most k h) eqn:C1;
      [|apply not_at_most in C1; lra]. now left. }
  destruct (Rle_dec (real k) x) as [D|D].
  - destruct (Rle_dec (real k) (real p)) as [E|E].
    + exists p, q. do 5 (split; auto). intros j v [[= <- <-]|I]; [left; lra | eauto].
    + exists k, q. repeat split; auto; try lra. intros j v [[= <- <-]|I]; [left; lra|]. destruct (N j v I);
        [left | right]; lra.
  - destruct (Rle_dec (real q) (real k)) as [E|E].
    + exists p, q. do 5 (split; auto). intros j v [[= <- <-]|I]; [right; lra | eauto].
    + exists p, k. repeat split; auto; try lra. intros j v [[= <- <-]|I]; [right; lra|]. destruct (N j v I);
        [left | right]; lra.
Qed.
Lemma straight_between ts p q x : p <= x <= q -> (forall k w, In (k, w) ts -> real k <= p \/ q <= real k) ->
  (q - p) * turned ts x = (q - x) * turned ts p + (x - p) * turned ts q.
Proof.
  intros X. induction ts as [|[k w] ts IH]; intros N; simpl; [ring|].
  rewrite Rmult_plus_distr_l, (IH (fun j v I => N j v (or_intror I))). destruct (N k w (or_introl eq_refl)).
  - rewrite !Rmax_right by lra. ring.
  - rewrite !Rmax_left by lra. ring.
Qed.
Lemma smallest_of ns : forall n, real (fold_left smaller ns n) <= real n /\ forall m, In m ns ->
  real (fold_left smaller ns n) <= real m.
Proof.
  induction ns as [|k ns IH]; intros n; simpl; [split; [lra | tauto]|]. destruct (IH (smaller n k)) as [A B].
  rewrite real_smaller in A.
  pose proof (Rmin_l (real n) (real k)). pose proof (Rmin_r (real n) (real k)). split; [lra|].
  intros m [<-|I]; [lra | auto].
Qed.
Lemma lowest_ok f s l h x : real l <= x <= real h -> real (lowest f s l h) <= bent_at f x - real s * x.
Proof.
  intros X. destruct (neighbours (turns f) l h x X) as [p [q [P [Q [B [_ [_ N]]]]]]].
  destruct (smallest_of (map (height f s) (points (turns f) l h)) (height f s l)) as [_ S]. fold (lowest f s l h) in S.
  pose proof (S _ (in_map (height f s) _ _ P)) as Lp. pose proof (S _ (in_map (height f s) _ _ Q)) as Lq.
  rewrite height_real in Lp, Lq.
  pose proof (straight_between (turns f) (real p) (real q) x B N) as T. unfold bent_at in *.
  set (low := real (lowest f s l h)) in *.
  destruct (Req_dec (real p) (real q)) as [E|E]; [replace x with (real p) by lra; lra|].
  apply Rmult_le_reg_l with (real q - real p); [lra|].
  assert ((real q - x) * low <= (real q - x) * (real (start f) + real (rise f) * real p + turned (turns f) (real p) -
    real s * real p)) by (apply Rmult_le_compat_l; lra).
  assert ((x - real p) * low <= (x - real p) * (real (start f) + real (rise f) * real q + turned (turns f) (real q) -
    real s * real q)) by (apply Rmult_le_compat_l; lra).
  lra.
Qed.
Lemma opposite_at f x : bent_at (opposite f) x = - bent_at f x.
Proof.
  unfold bent_at, opposite; simpl. rewrite !real_neg.
  assert (E : turned (map (fun t => (fst t, neg (snd t))) (turns f)) x = - turned (turns f) x).
  { induction (turns f) as [|[k w] ts IH]; simpl; [ring|]. rewrite IH, real_neg. ring. }
  rewrite E. ring.
Qed.
Lemma highest_ok f s l h x : real l <= x <= real h -> bent_at f x - real s * x <= real (highest f s l h).
Proof.
  intros X. unfold highest. pose proof (lowest_ok (opposite f) (neg s) l h x X) as L.
  rewrite opposite_at, real_neg in L. rewrite real_neg. lra.
Qed.
Lemma bent_line_ok f a l h given s b x : bent_line f a l h given = (s, b) -> real l <= x <= real h ->
  real a * (real s * x + real b) <= real a * bent_at f x.
Proof.
  unfold bent_line. intros E X. destruct (negative a) eqn:A; [apply negative_real in A | apply not_negative in A];
    injection E as <- <-.
  - match goal with |- context [highest f ?z l h] => pose proof (highest_ok f z l h x X) end. nra.
  - match goal with |- context [lowest f ?z l h] => pose proof (lowest_ok f z l h x X) end. apply Rmult_le_compat_l;
      lra.
Qed.

Lemma steep_on_ok a b ts : forall (F : R -> R) now most, in_order ts = true ->
  (forall k w x y, In (k, w) ts -> real k <= x -> real k <= y -> F y - F x = real now * (y - x)) ->
  (forall x y, real a <= x -> x <= y -> y <= real b -> Rabs (F y - F x) <= real most * (y - x)) ->
  forall x y, real a <= x -> x <= y -> y <= real b ->
    Rabs (F y + turned ts y - (F x + turned ts x)) <= real (steep_on a b ts now most) * (y - x).
Proof.
  induction ts as [|[k w] ts IH]; intros F now most O L M x y A X B; cbn [turned steep_on].
  { replace (F y + 0 - (F x + 0)) with (F y - F x) by ring. auto. }
  cbn [in_order] in O. apply andb_prop in O as [First O]. rewrite forallb_forall in First.
  replace (F y + (real w * Rmax 0 (y - real k) + turned ts y) - (F x + (real w * Rmax 0 (x - real k) + turned ts x)))
    with (F y + real w * Rmax 0 (y - real k) + turned ts y - (F x + real w * Rmax 0 (x - real k) + turned ts x)) by
      ring.
  set (G := fun z => F z + real w * Rmax 0 (z - real k)).
  assert (Behind : forall u v, real k <= u -> real k <= v -> G v - G u = (real now + real w) * (v - u)).
  { intros u v U V. unfold G. rewrite !Rmax_right by lra. pose proof (L k w u v (or_introl eq_refl) U V). lra. }
  assert (Before : forall u, u <= real k -> G u = F u) by (intros u U; unfold G; rewrite Rmax_left by lra; ring).
  apply (IH G); auto.
  - intros j v u z I U Z. rewrite real_add. specialize (First _ I). simpl in First. apply at_most_real in First.
    apply Behind; lra.
  - clear x y A X B. intros x y A X B.
    assert (Flat : real k <= x -> Rabs (G y - G x) <= Rabs (real now + real w) * (y - x)).
    { intros U. rewrite Behind, Rabs_mult, (Rabs_pos_eq (y - x)) by lra. lra. }
    destruct (at_most b k) eqn:Bk; [apply at_most_real in Bk; rewrite !Before by lra; auto | apply not_at_most in Bk].
    destruct (at_most k a) eqn:Ak; [apply at_most_real in Ak | apply not_at_most in Ak].
    + rewrite real_abs_of, real_add. apply Flat. lra.
    + rewrite real_larger, real_abs_of, real_add. set (N := Rabs (real now + real w)) in *.
      pose proof (Rmax_l (real most) N). pose proof (Rmax_r (real most) N).
      destruct (Rle_dec (real k) x) as [U|U]; [eapply Rle_trans; [now apply Flat|]; apply Rmult_le_compat_r; lra|].
      destruct (Rle_dec y (real k)) as [V|V]; [rewrite !Before by lra; eapply Rle_trans; [apply M; lra|];
        apply Rmult_le_compat_r; lra|].
      replace (G y - G x) with ((G y - G (real k)) + (G (real k) - G x)) by ring.
      eapply Rle_trans; [apply Rabs_triang|].
      rewrite Behind, Rabs_mult, (Rabs_pos_eq (y - real k)), !Before by lra. fold N.
      pose proof (M x (real k) A ltac:(lra) ltac:(lra)).
      assert (N * (y - real k) <= Rmax (real most) N * (y - real k)) by (apply Rmult_le_compat_r; lra).
      assert (real most * (real k - x) <= Rmax (real most) N * (real k - x)) by (apply Rmult_le_compat_r; lra). lra.
Qed.
Lemma steep_on_pos a b ts : forall now most, 0 <= real most -> 0 <= real (steep_on a b ts now most).
Proof.
  induction ts as [|[k w] ts IH]; intros now most M; simpl; auto. apply IH.
  destruct (at_most b k); auto. destruct (at_most k a); rewrite ?real_larger, real_abs_of; [apply Rabs_pos|].
  eapply Rle_trans; [exact M | apply Rmax_l].
Qed.
Lemma steepest_pos f a b : 0 <= real (steepest f a b).
Proof. apply steep_on_pos. rewrite real_abs_of. apply Rabs_pos. Qed.
Lemma steepest_ok f a b x y : in_order (turns f) = true -> real a <= x <= real b -> real a <= y <= real b ->
  Rabs (bent_at f y - bent_at f x) <= real (steepest f a b) * Rabs (y - x).
Proof.
  intros O. assert (Up : forall x y, real a <= x -> x <= y -> y <= real b ->
    Rabs (bent_at f y - bent_at f x) <= real (steepest f a b) * (y - x)).
  { intros u v U V W. apply (steep_on_ok a b (turns f) (fun z => real (start f) + real (rise f) * z)); auto.
    - intros. ring.
    - intros p q P Q S. rewrite real_abs_of. replace (_ - _) with (real (rise f) * (q - p)) by ring.
      rewrite Rabs_mult, (Rabs_pos_eq (q - p)) by lra. lra. }
  intros X Y. destruct (Rle_dec x y) as [L|L].
  - rewrite (Rabs_pos_eq (y - x)) by lra. apply Up; lra.
  - rewrite Rabs_minus_sym, (Rabs_minus_sym y x), (Rabs_pos_eq (x - y)) by lra. apply Up; lra.
Qed.
