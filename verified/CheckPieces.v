(* Relus that read the same few cells x, bounded together: with references z_c and x, and any numbers m,

     sum_c a_c * relu(z_c) >= m.x + the least, over the 2^n pieces of the box of x, of (sum_c a_c * relu(z_c) - m.x).

   Each z_c is a sum that is off by at most e_c from w_c.x + b_c, whatever values its products and its readers have read
   (`linked`). On a piece that bounds z_c, so relu has a line there. Which relus, which cells and m are hints. *)
From Coq Require Import Reals ZArith List Lra.
From Flocq Require Import Core.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckBend CheckExecution CheckSums CheckBackward.
Import ListNotations.
Open Scope R_scope.

(* --- the program --- *)
Definition box := list (number * number).
Definition half (x : number) := Number (mantissa x) (exponent x - 1).
Fixpoint pieces (b : box) : list box :=
  match b with
  | [] => [[]]
  | (l, h) :: b => let p := half (add l h) in flat_map (fun b => [(l, p) :: b; (p, h) :: b]) (pieces b)
  end.
(* the ends of w.x on a box *)
Fixpoint spanned (ws : list number) (b : box) : number * number :=
  match ws, b with
  | w :: ws, (l, h) :: b => let (p, q) := spanned ws b in
      if negative w then (add p (mul w h), add q (mul w l)) else (add p (mul w l), add q (mul w h))
  | _, _ => (zero, zero)
  end.
Fixpoint add_scaled (a : number) (xs ys : list number) : list number :=
  match xs, ys with
  | [], _ => ys
  | _, [] => map (mul a) xs
  | x :: xs, y :: ys => add (mul a x) y :: add_scaled a xs ys
  end.

(* a_c, e_c, b_c, w_c *)
Record member := Member { pull : number; error : number; bias : number; inner : list number }.
(* on a piece a line below the sum of all a_c * relu(z_c) and r.x: its slopes and its constant *)
Fixpoint line_below (b : box) (ms : list member) (r : list number) : option (list number * number) :=
  match ms with
  | [] => Some (r, zero)
  | Member a e o ws :: ms => let (p, q) := spanned ws b in
      match relu_line a (sub (add p o) e) (add (add q o) e) None, line_below b ms r with
      | Some (s, d), Some (r, c) => let t := mul a s in
          Some (add_scaled t ws r, add c (sub (add (mul t o) (mul a d)) (mul (abs_of t) e)))
      | _, _ => None
      end
  end.
Fixpoint least_of (ms : list member) (r : list number) (bs : list box) : option number :=
  match bs with
  | [] => None
  | b :: bs => match line_below b ms r with
    | None => None
    | Some (t, c) => let v := add c (fst (spanned t b)) in
        match bs with [] => Some v | _ => match least_of ms r bs with None => None | Some u => Some (smaller v u) end
          end
    end
  end.

Record group := Group { relus : list key; vector : list (key * number) }.          (* the cells x, with m *)
Definition directory := trie (cell * (number * state)).
Fixpoint directory_of (es : list entry) (t : directory) : directory :=
  match es with [] => t | (k, x, e) :: es => directory_of es (put k (Some (x, e)) t) end.
(* the coefficients of some cells, and what is left of a form without them *)
Fixpoint taken (ks : list key) (t : form) : list number * form :=
  match ks with
  | [] => ([], t)
  | k :: ks => let (ws, rest) := taken ks (put k None t) in
    (match get k t with None => zero | Some w => w end :: ws, rest)
  end.
Section Step.
Variables (facts : ranges) (seen : directory).
Fixpoint members (xs ks : list key) (f : form) : option (list member * form) :=
  match ks with
  | [] => Some ([], f)
  | k :: ks => match get k f with
    | None => members xs ks f
    | Some a => match get k seen with
      | Some (Relu j, _) => match get j seen with
        | Some (Sum _, (e, (t, o))) => match taken xs t, members xs ks (put k None f) with
          | (ws, Empty), Some (ms, f) => Some (Member a e o ws :: ms, f)
          | _, _ => None
          end
        | _ => None
        end
      | _ => None
      end
    end
  end.
Definition together (g : group) (s : state) : option state :=
  let xs := map fst (vector g) in let m := map snd (vector g) in
  match taps facts xs, members xs (relus g) (fst s) with
  | Some ts, Some (ms, f) => match least_of ms (map neg m) (pieces (map (fun t => (lower t, upper t)) ts)) with
    | None => None
    | Some v => Some (add_taps one m ts f, add (snd s) v)
    end
  | _, _ => None
  end.
End Step.
Definition jumps (facts : ranges) (es : list entry) (gs : trie group) : key -> option (state -> option state) :=
  match gs with
  | Empty => fun _ => None
  | _ => let seen := directory_of es Empty in
      fun k => match get k gs with None => None | Some g => Some (together facts seen g) end
  end.

(* --- what it means --- *)
Fixpoint dots (ws : list number) (xs : list R) : R := match ws, xs with w :: ws, x :: xs => real w * x + dots ws xs
  | _, _ => 0 end.
Definition inside (b : box) (xs : list R) : Prop := Forall2 (fun lh x => real (fst lh) <= x <= real (snd lh)) b xs.
Definition off_by (xs : list R) (m : member) (z : R) : Prop :=
  Rabs (z - (dots (inner m) xs + real (bias m))) <= real (error m).
Fixpoint attained (ms : list member) (zs : list R) : R :=
  match ms, zs with m :: ms, z :: zs => real (pull m) * Rmax 0 z + attained ms zs | _, _ => 0 end.

Lemma dots_scaled a ws : forall rs xs, dots (add_scaled a ws rs) xs = real a * dots ws xs + dots rs xs.
Proof.
  induction ws as [|w ws IH]; intros rs xs; simpl; [ring|]. destruct rs as [|r rs].
  - assert (M : forall us ys, dots (map (mul a) us) ys = real a * dots us ys).
    { induction us as [|u us IHu]; intros [|y ys]; simpl; try ring. rewrite IHu, real_mul. ring. }
    rewrite (M (w :: ws)). simpl. ring.
  - destruct xs as [|x xs]; simpl; [ring|]. rewrite IH. autorewrite with real. ring.
Qed.
Lemma dots_neg ms : forall xs, dots (map neg ms) xs = - dots ms xs.
Proof. induction ms as [|m ms IH]; intros [|x xs]; simpl; try ring. rewrite IH, real_neg. ring. Qed.
Lemma spanned_ok ws : forall b xs, inside b xs -> real (fst (spanned ws b)) <= dots ws xs <= real (snd (spanned ws b)).
Proof.
  induction ws as [|w ws IH]; intros b xs H; [simpl; rewrite real_zero; lra|]. inversion H as [|[l h] x b' xs' E H'];
    subst; simpl; [rewrite real_zero; lra|].
  specialize (IH _ _ H'). destruct (spanned ws b') as [p q]. simpl in *. pose proof (ends w l h x E) as B.
  destruct (negative w); simpl; rewrite !real_add; lra.
Qed.
Lemma line_below_ok b ms xs : inside b xs -> forall zs r t c, Forall2 (off_by xs) ms zs ->
  line_below b ms r = Some (t, c) ->
  dots t xs + real c <= attained ms zs + dots r xs.
Proof.
  intros B. induction ms as [|[a e o ws] ms IH]; intros zs r t c F; simpl; inversion F as [|? z ? zs' O F']; subst.
  { intros [= <- <-]. simpl. rewrite real_zero. lra. }
  pose proof (spanned_ok ws b xs B) as S. destruct (spanned ws b) as [p q]. simpl in S.
  destruct (relu_line a _ _ _) as [[s d]|] eqn:L; [|discriminate]. destruct (line_below b ms r) as [[t' c']|] eqn:E;
    [|discriminate].
  intros [= <- <-]. specialize (IH _ _ _ _ F' E). rewrite dots_scaled. autorewrite with real. simpl. unfold off_by in O;
    simpl in O.
  apply (relu_line_ok _ _ _ _ _ _ z) in L; [|autorewrite with real; apply Rabs_le_inv in O; lra].
  set (y := dots ws xs) in *. assert (A : real a * real s * (y + real o - z) <= Rabs (real a * real s) * real e);
    [|lra].
  eapply Rle_trans; [apply Rle_abs|]. rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|].
  rewrite Rabs_minus_sym. exact O.
Qed.
Lemma pieces_ok b : forall xs, inside b xs -> exists p, In p (pieces b) /\ inside p xs.
Proof.
  induction b as [|[l h] b IH]; intros xs H; inversion H as [|? x ? xs' E H']; subst;
    [exists []; split; [now left | constructor]|].
  destruct (IH _ H') as [p [I P]]. cbn [pieces]. set (c := half (add l h)). destruct (Rle_dec x (real c)) as [L|L].
  - exists ((l, c) :: p). split; [apply in_flat_map; exists p; split; auto; now left|]. constructor; auto. simpl in *.
    lra.
  - exists ((c, h) :: p). split; [apply in_flat_map; exists p; split; auto; right; now left|]. constructor; auto.
    simpl in *. lra.
Qed.
Lemma least_ok ms xs zs r : Forall2 (off_by xs) ms zs -> forall bs v, least_of ms r bs = Some v ->
  forall b, In b bs -> inside b xs -> real v <= attained ms zs + dots r xs.
Proof.
  intros F. induction bs as [|b bs IH]; intros v; [discriminate|]. cbn [least_of].
  destruct (line_below b ms r) as [[t c]|] eqn:L; [|discriminate].
  intros E. assert (Here : inside b xs -> real (add c (fst (spanned t b))) <= attained ms zs + dots r xs).
  { intros B. pose proof (line_below_ok _ _ _ B _ _ _ _ F L). pose proof (spanned_ok t b xs B). rewrite real_add. lra. }
  destruct bs as [|b' bs]; [injection E as <-; intros p [<-|[]]; auto|]. destruct (least_of ms r (b' :: bs)) as [u|];
    [|discriminate].
  injection E as <-. specialize (IH _ eq_refl). rewrite real_smaller. intros p [<-|H] B.
  - eapply Rle_trans; [apply Rmin_l | auto].
  - eapply Rle_trans; [apply Rmin_r | eauto].
Qed.

Section Meaning.
Variables (facts : ranges) (ref : key -> R).
Hypothesis in_range : forall k l h, get k facts = Some (l, h) -> real l <= ref k <= real h.
Let tabled (t : directory) := forall k x e, get k t = Some (x, e) -> linked ref k x e.

Lemma directory_of_ok es : Forall (entry_ok ref) es -> forall t, tabled t -> tabled (directory_of es t).
Proof.
  induction 1 as [|[[k x] e] es K _ IH]; intros t T; simpl; auto. apply IH. intros j y d G.
  destruct (key_dec k j) as [<-|N]; [rewrite get_put_same in G; injection G as <- <-;
    exact K | rewrite get_put_other in G by auto; now apply T].
Qed.
Lemma taken_ok ks : forall t ws rest, taken ks t = (ws, rest) ->
  form_at t ref = dots ws (map ref ks) + form_at rest ref.
Proof.
  induction ks as [|k ks IH]; intros t ws rest; simpl; [intros [= <- <-]; simpl; ring|].
  destruct (taken ks (put k None t)) as [us r] eqn:E. intros [= <- <-]. apply IH in E. rewrite total_put in E.
  simpl in *.
  destruct (get k t); simpl in *; rewrite ?real_zero; lra.
Qed.
Lemma members_ok seen xs : tabled seen -> forall ks f ms g, members seen xs ks f = Some (ms, g) ->
  exists zs, Forall2 (off_by (map ref xs)) ms zs /\ form_at f ref = attained ms zs + form_at g ref.
Proof.
  intros T. induction ks as [|k ks IH]; intros f ms g; simpl;
    [intros [= <- <-]; exists []; split; [constructor | simpl; ring]|].
  destruct (get k f) as [a|] eqn:A; [|apply IH]. destruct (get k seen) as [[[| |j| |] e0]|] eqn:K; try discriminate.
  destruct (get j seen) as [[[|s| | |] [e [t o]]]|] eqn:J; try discriminate.
  destruct (taken xs t) as [ws [|]] eqn:W; [|discriminate]. destruct (members _ _ ks _) as [[ms' g']|] eqn:E;
    [|discriminate].
  intros [= <- <-]. destruct (IH _ _ _ E) as [zs [F Q]]. exists (ref j :: zs). apply T in K. apply T in J. simpl in K.
  split.
  - constructor; auto. unfold off_by; simpl. unfold meaning in J; simpl in J. apply taken_ok in W. simpl in W.
    replace (dots ws (map ref xs) + real o) with (form_at t ref + real o) by lra. exact J.
  - rewrite total_put, A in Q. simpl in *. rewrite <- K. lra.
Qed.
Lemma weighed_dots ss : forall ts, weighed ref ss ts = dots ss (map ref (map at_key ts)).
Proof. induction ss as [|s ss IH]; intros [|t ts]; simpl; auto. now rewrite IH. Qed.

Theorem together_ok es g s s' : Forall (entry_ok ref) es -> together facts (directory_of es Empty) g s = Some s' ->
  meaning ref s' <= meaning ref s.
Proof.
  intros Es. unfold together. set (xs := map fst _). set (m := map snd _). destruct (taps facts xs) as [ts|] eqn:T;
    [|discriminate].
  destruct (members _ _ _ _) as [[ms f]|] eqn:M; [|discriminate]. destruct (least_of _ _ _) as [v|] eqn:L;
    [|discriminate]. intros [= <-].
  destruct (taps_ok facts ref in_range _ _ T) as [K B]. apply members_ok in M as [zs [F Q]];
    [|apply directory_of_ok; auto; intros k x e G; discriminate].
  assert (I : inside (map (fun t => (lower t, upper t)) ts) (map ref xs)).
  { rewrite <- K. clear - B. induction ts; simpl; constructor;
      [apply B; now left | apply IHts; intros; apply B; now right]. }
  destruct (pieces_ok _ _ I) as [p [Ip P]]. pose proof (least_ok _ _ _ _ F _ _ L p Ip P) as V. rewrite dots_neg in V.
  unfold meaning in *; simpl. rewrite add_taps_meaning, weighed_dots, K, real_add, real_one, Q. lra.
Qed.
Theorem jumps_ok es gs : Forall (entry_ok ref) es ->
  forall k j s s', jumps facts es gs k = Some j -> j s = Some s' -> meaning ref s' <= meaning ref s.
Proof.
  intros E k j s s'. unfold jumps. destruct gs as [|h e o]; [discriminate|]. destruct (get k _) as [g|];
    [|discriminate].
  intros [= <-]. now apply (together_ok es).
Qed.
End Meaning.
