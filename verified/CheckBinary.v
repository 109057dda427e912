(* To the bits: a network computed by IEEE binary32 operations, infinities and NaN included.

   CheckExecution.v speaks of real numbers that are rounded with unbounded exponents, as if nothing could overflow. Here
   a cell's value is a binary32 number: `code` is what a machine does for one cell, operations of Flocq's binary32 on
   constants and on numbers that it has read from other cells, in any order, with or without fused multiply-adds, to
   nearest or, where the unit allows it, in any direction, subnormal numbers flushed or not. `written` forgets the
   format: a formula of CheckTrees.v. `execution32` is a choice of such numbers for a network, `possible32` the numbers
   that a reader of a cell may see; both read as `execution` and `possible` of CheckExecution.v do, and nothing in them
   says that a number is finite, but of inputs and of the constants of the code. `binary32_network`: if `check` accepts
   the network, every number that a reader sees is finite and one of an execution of CheckExecution.v, and so no outputs
   lie in an excluded set. *)
From Coq Require Import Reals ZArith List Permutation Lra Lia Bool.
From Flocq Require Import Core BinarySingleNaN.
From Specgrad Require Import RoundingTree RoundingFormat RoundingFloat32 RoundingBinary.
From Specgrad Require Import CheckNumber CheckTrie CheckTrees CheckBend CheckExecution CheckFloat32 CheckSums
  CheckBackward CheckPieces CheckLayers CheckForward Check.
Import ListNotations.
Open Scope R_scope.

#[local] Instance prec_pos : Prec_gt_0 24 := eq_refl.
#[local] Instance prec_lt : Prec_lt_emax 24 128 := eq_refl.

(* --- what a machine does for one cell --- *)
Inductive code :=
  | Word (x : float32)                                   (* a constant *)
  | Loaded (k : key) (x : float32)                       (* what was read for cell k; elsewhere another may be read *)
  | Opposed (a : code)
  | Adds (a b : code)
  | Subtracts (a b : code)
  | Multiplies (a b : code)
  | Fuses (a b c : code)                                 (* a * b + c *)
  | Divides (a : code) (c : float32)
  | Flushes (a : code).                                  (* what is subnormal may count as zero, read or as a result *)

Section Code.
Variable unit : R.
Definition to_nearest (m : mode) : Prop := m = mode_NE \/ m = mode_NA.
(* Any direction where the unit is twice that of rounding to nearest. *)
Definition allowed (m : mode) : Prop := to_nearest m \/ bpow radix2 (-23) <= unit.
Inductive gives : code -> float32 -> Prop :=
  | gives_word x : gives (Word x) x
  | gives_loaded k x : gives (Loaded k x) x
  | gives_opposed a x : gives a x -> gives (Opposed a) (Bopp x)
  | gives_adds m a b x y : allowed m -> gives a x -> gives b y -> gives (Adds a b) (Bplus m x y)
  | gives_subtracts m a b x y : allowed m -> gives a x -> gives b y -> gives (Subtracts a b) (Bminus m x y)
  | gives_multiplies m a b x y : allowed m -> gives a x -> gives b y -> gives (Multiplies a b) (Bmult m x y)
  | gives_fuses m a b c x y z : allowed m -> gives a x -> gives b y -> gives c z ->
      gives (Fuses a b c) (Bfma m x y z)
  | gives_divides m a c x : allowed m -> gives a x -> gives (Divides a c) (Bdiv m x c)
  | gives_kept a x : gives a x -> gives (Flushes a) x
  | gives_flushed a x z : gives a x -> is_finite x = true -> Rabs (B2R x) < tiny32 -> is_finite z = true -> B2R z = 0 ->
      gives (Flushes a) z.

(* The formula that the code is. *)
Fixpoint written (c : code) : formula :=
  match c with
  | Word x => Constant (B2R x)
  | Loaded k x => Read k (B2R x)
  | Opposed a => Multiplied (Constant (-1)) (written a)
  | Adds a b => Rounded unit (Added (written a) (written b))
  | Subtracts a b => Rounded unit (Added (written a) (Multiplied (Constant (-1)) (written b)))
  | Multiplies a b => Rounded unit (Multiplied (written a) (written b))
  | Fuses a b c => Rounded unit (Added (Multiplied (written a) (written b)) (written c))
  | Divides a c => Rounded unit (Multiplied (written a) (Constant (/ B2R c)))
  | Flushes a => Rounded 0 (written a)
  end.
Fixpoint loads (c : code) : list (key * float32) :=
  match c with
  | Word _ => []
  | Loaded k x => [(k, x)]
  | Opposed a | Divides a _ | Flushes a => loads a
  | Adds a b | Subtracts a b | Multiplies a b => loads a ++ loads b
  | Fuses a b c => loads a ++ loads b ++ loads c
  end.
(* Its constants are finite, and it divides by none that is zero. *)
Fixpoint sane (c : code) : Prop :=
  match c with
  | Word x => is_finite x = true
  | Loaded _ _ => True
  | Opposed a | Flushes a => sane a
  | Divides a c => sane a /\ is_finite c = true /\ B2R c <> 0
  | Adds a b | Subtracts a b | Multiplies a b => sane a /\ sane b
  | Fuses a b c => sane a /\ sane b /\ sane c
  end.
End Code.

(* --- executions --- *)
Section Execution32.
Variables (net : network) (unit : R).
Variable held : key -> float32.                    (* inputs, and sums that are computed once *)
Variable drawn : key -> nat -> float32.            (* what a sum read at its n-th product, where that is shared *)

(* What is not a sum of products, of finite numbers: relu and max choose, and may flush; a function with kinks is near
   its value, as its cell says, unless its own result is too large. Of infinities and NaN they may give anything. *)
Definition chooses (xs : list float32) (m : R) (y : float32) : Prop :=
  Forall (fun x => is_finite x = true) xs -> is_finite y = true /\ Rabs (B2R y - m) <= least_normal.
Definition bends (f : bent) (x y : float32) : Prop := is_finite x = true ->
  exists r, Rabs (r - bent_at f (B2R x)) <= real (relative f) * Rabs (B2R x) + real (absolute f) /\
    (Rabs r <= real float32_max -> is_finite y = true /\ B2R y = r).

(* The code is a formula of cell k, of the class of CheckExecution.v: its products, and at most R roundings. *)
Definition code_of (k : key) (s : sums) (c : code) : Prop :=
  sane c /\ formula_of unit (fun k n => B2R (drawn k n)) k s (written unit c).
(* The codes that a machine uses for cell k: code_of, or some of these. *)
Variable used : key -> sums -> code -> Prop.

(* x is one of the numbers that cell k may have, as some reader sees it. *)
Inductive possible32 : key -> float32 -> Prop :=
  | possible32_input k low high : In (k, Input low high) net -> possible32 k (held k)
  | possible32_once k s : In (k, Sum s) net -> once s = true -> possible32 k (held k)
  | possible32_sum k s c x : In (k, Sum s) net -> once s = false -> used k s c ->
      (forall j w, In (j, w) (loads c) -> possible32 j w) -> gives unit c x -> possible32 k x
  | possible32_relu k j x y : In (k, Relu j) net -> possible32 j x -> chooses [x] (Rmax 0 (B2R x)) y -> possible32 k y
  | possible32_max k j js x xs y : In (k, Max j js) net -> possible32 j x -> Forall2 possible32 js xs ->
      chooses (x :: xs) (maximum (B2R x) (map B2R xs)) y -> possible32 k y
  | possible32_bend k j f x y : In (k, Bend j f) net -> possible32 j x -> bends f x y -> possible32 k y.

Definition performs (k : key) (s : sums) (c : code) (x : float32) : Prop :=
  used k s c /\ (forall j w, In (j, w) (loads c) -> possible32 j w) /\ gives unit c x.

Definition execution32 : Prop :=
  (forall k low high, In (k, Input low high) net -> is_finite (held k) = true /\
     real low <= B2R (held k) <= real high) /\
  (forall k s, In (k, Sum s) net -> once s = true -> exists c, performs k s c (held k)) /\
  (forall k s n p j, In (k, Sum s) net -> nth_error (terms s) n = Some p -> shared p = true -> source p = Some j ->
     possible32 j (drawn k n)).
End Execution32.

(* --- one operation --- *)
Local Notation rounded m := (round radix2 (SpecFloat.fexp 24 128) (round_mode m)).
Local Notation limit := (bpow radix2 128).

Lemma allowed_near unit m x : bpow radix2 (-24) <= unit -> allowed unit m -> near unit least_normal x (rounded m x).
Proof.
  intros U A. assert (More : forall u, u <= unit -> near u least_normal x (rounded m x) ->
    near unit least_normal x (rounded m x)).
  { intros u Hu [N|N]; [left | now right]. eapply Rle_trans; [exact N|].
    apply Rmult_le_compat_r; [apply Rabs_pos | lra]. }
  destruct A as [[-> | ->] | A].
  - apply (More (bpow radix2 (-24)) U). apply operation32_near.
    apply (operation_wider (-149) 24 True x (-149) 24 (fun n => negb (Z.even n))); lia.
  - apply (More (bpow radix2 (-24)) U). apply operation32_near.
    apply (operation_wider (-149) 24 True x (-149) 24 (Z.leb 0)); lia.
  - apply (More (2 * u32)).
    + replace (2 * u32) with (bpow radix2 (-23)); [exact A|]. unfold u32, unit_roundoff. change 2 with (bpow radix2 1).
      now rewrite <- bpow_plus.
    + apply directed32_near. apply (directed_once (-149) 24 True x (-149) 24 (round_mode m)); [|lia | lia].
      apply valid_rnd_round_mode.
Qed.
Lemma most_is_float : generic_format radix2 (SpecFloat.fexp 24 128) (real float32_max).
Proof.
  apply (generic_format_FLT radix2 (SpecFloat.emin 24 128) 24).
  now exists (Float radix2 (2 ^ 24 - 1) 104).
Qed.
Lemma most_below : real float32_max < limit.
Proof.
  unfold real, float32_max. cbn [mantissa exponent]. change 128%Z with (24 + 104)%Z. rewrite bpow_plus.
  apply Rmult_lt_compat_r; [apply bpow_gt_0|]. rewrite <- IZR_Zpower by lia. apply IZR_lt. simpl. lia.
Qed.
Lemma within m x : Rabs x <= real float32_max -> Rlt_bool (Rabs (rounded m x)) limit = true.
Proof.
  intros H. apply Rlt_bool_true. eapply Rle_lt_trans; [|exact most_below].
  apply abs_round_le_generic; [apply FLT_exp_valid; reflexivity | apply valid_rnd_round_mode | exact most_is_float
    | exact H].
Qed.

(* --- one cell --- *)
(* Rounded with unbounded exponents it is a value of its formula; if nothing is too large, that is the number itself. *)
Lemma gives_evals unit c x : bpow radix2 (-24) <= unit -> gives unit c x -> sane c ->
  (forall j w, In (j, w) (loads c) -> is_finite w = true) ->
  exists r m, evals (written unit c) r m /\ (m <= real float32_max -> is_finite x = true /\ B2R x = r).
Proof.
  intros U G. assert (U0 : 0 <= unit) by (pose proof (bpow_gt_0 radix2 (-24)); lra).
  assert (Near : forall m t e n, allowed unit m -> evals t e n ->
    evals (Rounded unit t) (rounded m e) (Rmax n (Rabs e))).
  { intros. apply near_rounds; auto. now apply allowed_near. }
  assert (Both : forall a b p, Rmax a b <= p -> a <= p /\ b <= p).
  { intros a b p H. pose proof (Rmax_l a b). pose proof (Rmax_r a b). lra. }
  induction G as [x | k x | a x G IH | m a b x y A Ga IHa Gb IHb | m a b x y A Ga IHa Gb IHb | m a b x y A Ga IHa Gb IHb
    | m a b d x y z A Ga IHa Gb IHb Gc IHc | m a d x A G IH | a x G IH | a x z G IH F T Fz Z]; cbn [sane loads written];
    intros S L.
  - exists (B2R x), 0. split; [constructor | auto].
  - exists (B2R x), 0. split; [constructor | intros _; split; auto; eapply L; now left].
  - destruct (IH S L) as [r [n [E H]]]. exists (-1 * r), (Rmax 0 n). split; [constructor; [constructor | exact E]|].
    intros M. destruct (Both _ _ _ M) as [_ Mn]. destruct (H Mn) as [F R]. rewrite is_finite_Bopp, B2R_Bopp, R.
    split; auto; ring.
  - destruct S as [Sa Sb]. destruct (IHa Sa) as [r [n [E H]]]; [intros; eapply L, in_or_app; eauto|].
    destruct (IHb Sb) as [r' [n' [E' H']]]; [intros; eapply L, in_or_app; eauto|].
    do 2 eexists. split; [eapply (Near m); [exact A|]; constructor; eassumption|]. intros M.
    destruct (Both _ _ _ M) as [M1 M2]. destruct (Both _ _ _ M1) as [N1 N2].
    destruct (H N1) as [Fx <-], (H' N2) as [Fy <-].
    pose proof (Bplus_correct 24 128 _ _ m x y Fx Fy) as C. rewrite within in C by exact M2. tauto.
  - destruct S as [Sa Sb]. destruct (IHa Sa) as [r [n [E H]]]; [intros; eapply L, in_or_app; eauto|].
    destruct (IHb Sb) as [r' [n' [E' H']]]; [intros; eapply L, in_or_app; eauto|].
    exists (rounded m (r - r')), (Rmax (Rmax n (Rmax 0 n')) (Rabs (r - r'))). split.
    + apply Near; [exact A|]. replace (r - r') with (r + -1 * r') by ring.
      constructor; [exact E | constructor; [constructor | exact E']].
    + intros M. destruct (Both _ _ _ M) as [M1 M2]. destruct (Both _ _ _ M1) as [N1 N2].
      destruct (Both _ _ _ N2) as [_ N3]. destruct (H N1) as [Fx <-], (H' N3) as [Fy <-].
      pose proof (Bminus_correct 24 128 _ _ m x y Fx Fy) as C. rewrite within in C by exact M2. tauto.
  - destruct S as [Sa Sb]. destruct (IHa Sa) as [r [n [E H]]]; [intros; eapply L, in_or_app; eauto|].
    destruct (IHb Sb) as [r' [n' [E' H']]]; [intros; eapply L, in_or_app; eauto|].
    do 2 eexists. split; [eapply (Near m); [exact A|]; constructor; eassumption|]. intros M.
    destruct (Both _ _ _ M) as [M1 M2]. destruct (Both _ _ _ M1) as [N1 N2].
    destruct (H N1) as [Fx <-], (H' N2) as [Fy <-].
    pose proof (Bmult_correct 24 128 _ _ m x y) as C. rewrite within in C by exact M2. rewrite Fx, Fy in C. tauto.
  - destruct S as [Sa [Sb Sc]]. destruct (IHa Sa) as [r [n [E H]]]; [intros; eapply L, in_or_app; eauto|].
    destruct (IHb Sb) as [r' [n' [E' H']]]; [intros; eapply L, in_or_app; right; apply in_or_app; eauto|].
    destruct (IHc Sc) as [q [o [Ec Hc]]]; [intros; eapply L, in_or_app; right; apply in_or_app; eauto|].
    do 2 eexists. split; [eapply (Near m); [exact A|]; constructor; [constructor; eassumption | exact Ec]|]. intros M.
    destruct (Both _ _ _ M) as [M1 M2]. destruct (Both _ _ _ M1) as [M3 M4]. destruct (Both _ _ _ M3) as [N1 N2].
    destruct (H N1) as [Fx <-], (H' N2) as [Fy <-], (Hc M4) as [Fz <-].
    pose proof (Bfma_correct 24 128 _ _ m x y z Fx Fy Fz) as C. cbv zeta in C. rewrite within in C by exact M2. tauto.
  - destruct S as [Sa [Fd D0]]. destruct (IH Sa) as [r [n [E H]]]; [exact L|].
    exists (rounded m (r / B2R d)), (Rmax (Rmax n 0) (Rabs (r / B2R d))). split.
    + apply Near; [exact A|]. constructor; [exact E | constructor].
    + intros M. destruct (Both _ _ _ M) as [M1 M2]. destruct (Both _ _ _ M1) as [N1 _]. destruct (H N1) as [Fx <-].
      pose proof (Bdiv_correct 24 128 _ _ m x d D0) as C. rewrite within in C by exact M2. rewrite Fx in C. tauto.
  - destruct (IH S L) as [r [n [E H]]]. exists r, (Rmax n (Rabs r)). split.
    + replace r with (r * (1 + 0) + 0) at 1 by ring. constructor; [exact E | rewrite Rabs_R0; lra |].
      rewrite Rabs_R0. left. apply least_normal_pos.
    + intros M. apply H. now apply Both in M.
  - destruct (IH S L) as [r [n [E H]]]. destruct (Rle_or_lt (Rabs r) least_normal) as [Small|Large].
    + exists 0, (Rmax n (Rabs r)). split; [|intros _; auto]. replace 0 with (r * (1 + 0) + - r) at 2 by ring.
      constructor; [exact E | rewrite Rabs_R0; lra | now rewrite Rabs_Ropp].
    + exists r, (Rmax n (Rabs r)). split.
      * replace r with (r * (1 + 0) + 0) at 1 by ring. constructor; [exact E | rewrite Rabs_R0; lra |].
        rewrite Rabs_R0. left. apply least_normal_pos.
      * intros M. destruct (H (proj1 (Both _ _ _ M))) as [_ <-]. exfalso. revert T Large.
        change tiny32 with least_normal. lra.
Qed.

(* --- a network, cell by cell --- *)
(* Nothing that is proven of a whole network is lost by its cells so far. *)
Lemma visits_app made runs unit tight lines part rest : forall g g',
  visits made runs unit tight lines g (part ++ rest) = Some g' ->
  exists g1, visits made runs unit tight lines g part = Some g1.
Proof.
  induction part as [|kx part IH]; intros g g' H; simpl in *; [eauto|].
  destruct (visit _ _ _ _ _ _ _); [eauto | discriminate].
Qed.
Lemma ordered_app part rest : forall seen, ordered (part ++ rest) seen = true -> ordered part seen = true.
Proof.
  induction part as [|[k x] part IH]; intros seen O; simpl in *; auto.
  apply andb_prop in O as [-> O]. simpl. eauto.
Qed.
Lemma prefix_calm part rest unit groups : check (part ++ rest) unit groups = true ->
  forall stored fetched, execution part (real unit) stored fetched ->
  ~ overflows part (real unit) stored fetched (real float32_max).
Proof.
  unfold check. intros C stored fetched X. apply andb_prop in C as [O C]. apply andb_prop in O as [O _].
  pose proof (ordered_unique (part ++ rest) unit stored fetched _ Empty O) as U.
  destruct (references part unit stored fetched part Empty (fun _ => 0) (ordered_app _ _ _ O)) as [ref [_ Ref]].
  set (net := part ++ rest) in *. set (made := rows_of net Empty) in *.
  assert (I : incl part net) by (intros a H; apply in_or_app; now left).
  pose proof (fun k s r => rows_of_ok net ref net Empty U (incl_refl _) ltac:(intros; discriminate) k s r) as Made.
  fold made in Made. destruct (forward _ _ _ _ _ _ _ _) as [g|] eqn:F; [|discriminate].
  destruct (visits_app _ _ _ _ _ part rest _ _ F) as [g1 F1].
  apply (forward_ok part _ _ unit stored fetched ref) in F1 as [_ S]; auto;
    [| intros k x y A B; apply (U k); auto | intros k s r K; apply Made; auto | intros k l h G; discriminate
     | intros k l h G; discriminate].
  rewrite Forall_forall in S. intros [[k [s [v [m [K [Cm L]]]]]] | [k [j [f [v [K [V L]]]]]]].
  - specialize (S _ K v m Cm). simpl in S. lra.
  - specialize (S _ K v V). simpl in S. lra.
Qed.

(* What a cell may be does not change with what stands behind. *)
Lemma possible_more net net' unit stored stored' fetched :
  (forall k x, In (k, x) net -> In (k, x) net' /\ stored k = stored' k) ->
  forall k v, possible net unit stored fetched k v -> possible net' unit stored' fetched k v.
Proof.
  intros S. fix F 3. intros k v [i low high K | i s K O | i s t w m K O T R E | i j w e K V B | i j js w ws e K V Vs B
    | i j f w e K V B].
  - destruct (S _ _ K) as [K' ->]. eapply possible_input; eauto.
  - destruct (S _ _ K) as [K' ->]. eapply possible_once; eauto.
  - eapply possible_sum; [apply S; exact K | exact O | exact T | intros j u H; apply F; exact (R j u H) | exact E].
  - eapply possible_relu; [apply S; exact K | apply F; exact V | exact B].
  - eapply possible_max; [apply S; exact K | apply F; exact V | | exact B].
    clear - F Vs. induction Vs; constructor; [apply F; assumption | assumption].
  - eapply possible_bend; [apply S; exact K | apply F; exact V | exact B].
Qed.
Lemma computes_more net net' unit stored stored' fetched :
  (forall k x, In (k, x) net -> In (k, x) net' /\ stored k = stored' k) ->
  forall k s v m, computes net unit stored fetched k s v m -> computes net' unit stored' fetched k s v m.
Proof.
  intros S k s v m [t [T [R E]]]. exists t. split; [exact T|]. split; [|exact E].
  intros j w H. eapply possible_more; eauto.
Qed.

(* A cell that is added to an execution. *)
Definition executes_next net unit stored fetched k (x : cell) : Prop :=
  match x with
  | Input low high => real low <= stored k <= real high
  | Sum s => (once s = true -> exists m, computes net unit stored fetched k s (stored k) m) /\
      forall n p j, nth_error (terms s) n = Some p -> shared p = true -> source p = Some j ->
        possible net unit stored fetched j (fetched k n)
  | _ => True
  end.
Lemma execution_next part unit stored stored' fetched k x : execution part unit stored fetched ->
  (forall j, In j (map fst part) -> stored j = stored' j) ->
  executes_next (part ++ [(k, x)]) unit stored' fetched k x -> execution (part ++ [(k, x)]) unit stored' fetched.
Proof.
  intros [X1 [X2 X3]] Same N. assert (S : forall j y, In (j, y) part -> In (j, y) (part ++ [(k, x)]) /\
    stored j = stored' j).
  { intros j y J. split; [apply in_or_app; now left | apply Same, (in_map fst _ _ J)]. }
  split; [|split].
  - intros j l h J. apply in_app_or in J as [J|[J|[]]]; [|injection J as -> ->; exact N].
    destruct (S _ _ J) as [_ <-]. eauto.
  - intros j s J O. apply in_app_or in J as [J|[J|[]]]; [|injection J as -> ->; now apply N].
    destruct (S _ _ J) as [_ <-]. destruct (X2 _ _ J O) as [m C]. exists m. eapply computes_more; eauto.
  - intros j s n p i J P H E. apply in_app_or in J as [J|[J|[]]]; [|injection J as -> ->; destruct N; eauto].
    eapply possible_more; eauto.
Qed.

(* A formula reads sources of its cell alone. *)
Lemma addends_some t : exists m l, addends t = m :: l.
Proof.
  induction t as [c|k v|a IHa b IHb|a IHa b IHb|n a IH]; simpl; eauto.
  - destruct IHa as [m [l ->]]. simpl. eauto.
  - destruct IHa as [m [l ->]], IHb as [m' [l' ->]]. simpl. eauto.
Qed.
Lemma read_in_addend t k v : In (k, v) (cells_read t) -> exists m, In m (addends t) /\ In (k, v) (vars m).
Proof.
  induction t as [c|j w|a IHa b IHb|a IHa b IHb|n a IH]; simpl; auto.
  - intros [].
  - intros [[= <- <-]|[]]. eexists. split; [now left | now left].
  - intros H. apply in_app_or in H as [H|H]; [destruct (IHa H) as [m [M V]] | destruct (IHb H) as [m [M V]]];
      exists m; split; auto; apply in_or_app; auto.
  - intros H. apply in_app_or in H as [H|H].
    + destruct (IHa H) as [m [M V]]. destruct (addends_some b) as [m' [l E]]. exists (times m m'). split.
      * apply in_flat_map. exists m. split; auto. apply in_map. rewrite E. now left.
      * apply in_or_app. now left.
    + destruct (IHb H) as [m [M V]]. destruct (addends_some a) as [m' [l E]]. exists (times m' m). split.
      * apply in_flat_map. exists m'. split; [rewrite E; now left | now apply in_map].
      * apply in_or_app. now right.
Qed.
Lemma reads_sources unit fetched k s t j v : formula_of unit fetched k s t -> In (j, v) (cells_read t) ->
  In j (sources (Sum s)).
Proof.
  intros [_ [_ [_ [ms [P M]]]]] H. destruct (read_in_addend _ _ _ H) as [m [A V]].
  assert (B : In m ms) by (eapply Permutation_in; eauto). clear - M B V. cbn [sources]. revert M. generalize 0%nat.
  revert B. generalize (terms s). intros ps. revert ms. induction ps as [|p ps IH]; intros [|a ms] B n M; simpl in M;
    try tauto.
  destruct M as [M Ms]. apply in_or_app. destruct B as [->|B]; [left | right; eapply IH; eauto].
  destruct M as [_ [_ M]]. destruct (source p) as [i|]; [|rewrite M in V; destruct V].
  destruct M as [w [E _]]. rewrite E in V. destruct V as [[= <- <-]|[]]. now left.
Qed.
Lemma cells_read_written unit c j v : In (j, v) (cells_read (written unit c)) -> exists x, In (j, x) (loads c) /\
  v = B2R x.
Proof.
  induction c; simpl; rewrite ?app_nil_r; auto; try tauto.
  - intros [[= <- <-]|[]]. eauto.
  - intros H. apply in_app_or in H as [H|H]; [destruct (IHc1 H) as [x [X ->]] | destruct (IHc2 H) as [x [X ->]]];
      exists x; split; auto; apply in_or_app; auto.
  - intros H. apply in_app_or in H as [H|H]; [destruct (IHc1 H) as [x [X ->]] | destruct (IHc2 H) as [x [X ->]]];
      exists x; split; auto; apply in_or_app; auto.
  - intros H. apply in_app_or in H as [H|H]; [destruct (IHc1 H) as [x [X ->]] | destruct (IHc2 H) as [x [X ->]]];
      exists x; split; auto; apply in_or_app; auto.
  - intros H. rewrite <- app_assoc in H. apply in_app_or in H as [H|H];
      [destruct (IHc1 H) as [x [X ->]]; exists x; split; auto; apply in_or_app; auto|].
    apply in_app_or in H as [H|H]; [destruct (IHc2 H) as [x [X ->]] | destruct (IHc3 H) as [x [X ->]]];
      exists x; split; auto; apply in_or_app; right; apply in_or_app; auto.
Qed.
Lemma loads_read unit c j x : In (j, x) (loads c) -> In (j, B2R x) (cells_read (written unit c)).
Proof.
  induction c; simpl; rewrite ?app_nil_r; auto; try tauto.
  - intros [[= <- <-]|[]]. now left.
  - intros H. apply in_or_app. apply in_app_or in H as [H|H]; auto.
  - intros H. apply in_or_app. apply in_app_or in H as [H|H]; auto.
  - intros H. apply in_or_app. apply in_app_or in H as [H|H]; auto.
  - intros H. rewrite <- app_assoc. apply in_or_app. apply in_app_or in H as [H|H]; [auto|]. right. apply in_or_app.
    apply in_app_or in H as [H|H]; auto.
Qed.
Lemma ordered_at part : forall seen k x rest, ordered (part ++ (k, x) :: rest) seen = true ->
  ~ In k (map fst part) /\ get k seen = None /\
  forall j, In j (sources x) -> get j seen <> None \/ In j (map fst part).
Proof.
  induction part as [|[i y] part IH]; intros seen k x rest O; simpl in O; apply andb_prop in O as [O1 O];
    apply andb_prop in O1 as [N S].
  - rewrite forallb_forall in S. split; [intros []|]. split; [destruct (get k seen); [discriminate | reflexivity]|].
    intros j J. left. specialize (S j J). destruct (get j seen); discriminate.
  - destruct (IH _ _ _ _ O) as [A [B D]].
    assert (Ik : i <> k) by (intros ->; rewrite get_put_same in B; discriminate).
    rewrite get_put_other in B by exact Ik. split; [intros [E|E]; auto|]. split; [exact B|].
    intros j J. destruct (D j J) as [E|E]; [|right; now right].
    destruct (key_dec i j) as [->|Nj]; [right; now left | left; now rewrite get_put_other in E].
Qed.

Section Network.
Variables (net : network) (unit : number) (groups : list (list alternative * plan)).
Hypothesis accepted : check net unit groups = true.
Hypothesis unit_large : bpow radix2 (-24) <= real unit.
Variables (held : key -> float32) (drawn : key -> nat -> float32).
Variable used : key -> sums -> code -> Prop.
Hypothesis of_the_class : forall k s c, In (k, Sum s) net -> used k s c -> code_of (real unit) drawn k s c.
Hypothesis executed : execution32 net (real unit) held drawn used.
Let stored (k : key) : R := B2R (held k).
Let fetched (k : key) (n : nat) : R := B2R (drawn k n).
Notation seen := (possible32 net (real unit) held used).

Definition carried (part : network) (stored' : key -> R) : Prop := forall j w, In j (map fst part) -> seen j w ->
  is_finite w = true /\ possible part (real unit) stored' fetched j (B2R w).

Lemma in_order : ordered net Empty = true.
Proof. pose proof accepted as C. unfold check in C. apply andb_prop in C as [O _].
now apply andb_prop in O as [O _]. Qed.
Lemma one_cell k x y : In (k, x) net -> In (k, y) net -> x = y.
Proof. exact (ordered_unique net zero (fun _ => 0) (fun _ _ => 0) net Empty in_order k x y). Qed.

(* A sum whose sources are in order: with unbounded exponents it computes r, in whichever execution of them. *)
Lemma sum_carried part more k s c x : (forall j, In j (sources (Sum s)) -> In j (map fst part)) ->
  In (k, Sum s) net -> performs net (real unit) held used k s c x -> carried part stored ->
  exists r m, (forall st, (forall j y, In (j, y) part -> In (j, y) more /\ stored j = st j) ->
    formula_of (real unit) fetched k s (written (real unit) c) /\
    (forall j w, In (j, w) (cells_read (written (real unit) c)) -> possible more (real unit) st fetched j w) /\
    evals (written (real unit) c) r m) /\
    (m <= real float32_max -> is_finite x = true /\ B2R x = r).
Proof.
  intros Src K [Used [L G]] Good. destruct (of_the_class _ _ _ K Used) as [S F].
  assert (At : forall j w, In (j, w) (loads c) -> In j (map fst part)).
  { intros j w H. apply Src. eapply reads_sources; [exact F | apply loads_read; exact H]. }
  destruct (gives_evals (real unit) c x unit_large G S) as [r [m [E H]]].
  { intros j w J. apply (Good j w); eauto. }
  exists r, m. split; [|exact H]. intros st Same. split; [exact F|]. split; [|exact E].
  intros j v J. destruct (cells_read_written _ _ _ _ J) as [w [W ->]].
  apply (possible_more part more (real unit) stored st fetched Same). apply Good; eauto.
Qed.

Lemma network_carried part : forall rest, net = part ++ rest ->
  execution part (real unit) stored fetched /\ carried part stored.
Proof.
  destruct executed as [X1 [X2 X3]]. induction part as [|[k c] part IH] using rev_ind; intros rest N.
  - split; [|intros j w []]. split; [|split]; intros; contradiction.
  - destruct (IH ((k, c) :: rest)) as [X Good]; [now rewrite N, <- app_assoc|].
    pose proof in_order as O. rewrite N, <- app_assoc in O. simpl in O.
    destruct (ordered_at _ _ _ _ _ O) as [Fresh [_ Src]].
    assert (Src' : forall j, In j (sources c) -> In j (map fst part)).
    { intros j J. destruct (Src j J) as [H|H]; [elim H; reflexivity | exact H]. }
    assert (K : In (k, c) net) by (rewrite N; apply in_or_app; left; apply in_or_app; right; now left).
    set (more := part ++ [(k, c)]) in *. assert (K' : In (k, c) more) by (apply in_or_app; right; now left).
    pose proof accepted as C. rewrite N in C. pose proof (prefix_calm more rest unit groups C) as Calm.
    assert (Step : forall st, (forall j, In j (map fst part) -> stored j = st j) ->
      forall j y, In (j, y) part -> In (j, y) more /\ stored j = st j).
    { intros st Same j y J. split; [apply in_or_app; now left | apply Same, (in_map fst _ _ J)]. }
    assert (Old : forall st, (forall j, In j (map fst part) -> stored j = st j) ->
      forall j w, In j (map fst part) -> seen j w ->
      is_finite w = true /\ possible more (real unit) st fetched j (B2R w)).
    { intros st Same j w J W. destruct (Good j w J W) as [F V]. split; [exact F|].
      eapply possible_more; [apply Step; exact Same | exact V]. }
    assert (Small : forall st s r m, c = Sum s -> execution more (real unit) st fetched ->
      computes more (real unit) st fetched k s r m -> m <= real float32_max).
    { intros st s r m -> Y Cm. destruct (Rle_or_lt m (real float32_max)) as [L|L]; [exact L|].
      elim (Calm st fetched Y). left. exists k, s, r, m. auto. }
    assert (Shared : forall st s, c = Sum s -> (forall j, In j (map fst part) -> stored j = st j) ->
      forall n p j, nth_error (terms s) n = Some p -> shared p = true -> source p = Some j ->
      possible more (real unit) st fetched j (fetched k n)).
    { intros st s -> Same n p j P H J. apply (Old st Same j (drawn k n)).
      - apply Src'. simpl. apply in_flat_map. exists p. split; [eapply nth_error_In; eauto|]. rewrite J. now left.
      - eapply X3; eauto. }
    assert (Once : forall s, c = Sum s -> once s = true -> exists m, is_finite (held k) = true /\
      computes more (real unit) stored fetched k s (stored k) m).
    { intros s -> On. destruct (X2 k s K On) as [a A].
      destruct (sum_carried part more k s a (held k) Src' K A Good) as [r [m [Do H]]].
      assert (Same : forall j, In j (map fst part) -> stored j = update stored k r j).
      { intros j J. unfold update. destruct (key_dec k j) as [->|]; [now elim Fresh | reflexivity]. }
      destruct (Do (update stored k r) (Step _ Same)) as [F [R E]].
      assert (At : update stored k r k = r) by (unfold update; now destruct (key_dec k k)).
      assert (Y : execution more (real unit) (update stored k r) fetched).
      { apply (execution_next part (real unit) stored (update stored k r) fetched k (Sum s) X Same). split.
        - intros _. exists m. rewrite At. exists (written (real unit) a). auto.
        - exact (Shared _ s eq_refl Same). }
      assert (M : m <= real float32_max).
      { apply (Small _ s r m eq_refl Y). exists (written (real unit) a). auto. }
      destruct (H M) as [Fin V]. exists m. split; [exact Fin|]. fold (stored k) in V. rewrite V.
      destruct (Do stored (Step stored (fun _ _ => eq_refl))) as [F' [R' E']]. exists (written (real unit) a). auto. }
    assert (Y : execution more (real unit) stored fetched).
    { apply (execution_next part (real unit) stored stored fetched k c X); [reflexivity|].
      destruct c as [l h|s|j|j js|j b];
        try exact Logic.I.
      - apply (X1 k l h K).
      - split; [|exact (Shared stored s eq_refl (fun _ _ => eq_refl))]. intros On.
        destruct (Once s eq_refl On) as [m [_ Cm]].
        eauto. }
    split; [exact Y|]. intros j w J W. unfold more in J. rewrite map_app, in_app_iff in J.
    destruct J as [J|[<-|[]]]; [exact (Old stored (fun _ _ => eq_refl) j w J W)|]. cbn [fst] in W.
    inversion W as [i l h I | i s I On | i s a x I On Cd L G | i j x y I V Ch | i j js x xs y I V Vs Ch
      | i j b x y I V B];
      subst; pose proof (one_cell _ _ _ K I) as E; subst c.
    + split; [apply (X1 k l h K) | eapply possible_input; eauto].
    + destruct (Once s eq_refl On) as [m [F _]]. split; [exact F | eapply possible_once; eauto].
    + destruct (sum_carried part more k s a w Src' I (conj Cd (conj L G)) Good) as [r [m [Do H]]].
      destruct (Do stored (Step stored (fun _ _ => eq_refl))) as [F [R E]].
      destruct (H (Small stored s r m eq_refl Y (ex_intro _ _ (conj F (conj R E))))) as [Fin ->].
      split; [exact Fin | eapply possible_sum; eauto].
    + destruct (Old stored (fun _ _ => eq_refl) j x (Src' j (or_introl eq_refl)) V) as [F P].
      destruct (Ch (Forall_cons _ F (Forall_nil _))) as [Fw D]. split; [exact Fw|].
      replace (B2R w) with (Rmax 0 (B2R x) + (B2R w - Rmax 0 (B2R x))) by ring. eapply possible_relu; eauto.
    + destruct (Old stored (fun _ _ => eq_refl) j x (Src' j (or_introl eq_refl)) V) as [F P].
      assert (Q : Forall (fun x => is_finite x = true) xs /\
        Forall2 (possible more (real unit) stored fetched) js (map B2R xs)).
      { assert (Sj : forall i, In i js -> In i (map fst part)) by (intros i Hi; apply Src'; now right).
        clearbody more. clear - Vs Sj Old. induction Vs as [|i x js xs V Vs IHv]; simpl; [auto|].
        destruct (Old stored (fun _ _ => eq_refl) i x (Sj i (or_introl eq_refl)) V) as [F P].
        destruct IHv as [A B]; [intros; apply Sj; now right | auto]. }
      destruct Q as [Fs Ps]. destruct (Ch (Forall_cons _ F Fs)) as [Fw D]. split; [exact Fw|].
      replace (B2R w) with (maximum (B2R x) (map B2R xs) + (B2R w - maximum (B2R x) (map B2R xs))) by ring.
      eapply possible_max; eauto.
    + destruct (Old stored (fun _ _ => eq_refl) j x (Src' j (or_introl eq_refl)) V) as [F P].
      destruct (B F) as [r [D R]].
      assert (Pr : possible more (real unit) stored fetched k r).
      { replace r with (bent_at b (B2R x) + (r - bent_at b (B2R x))) by ring. eapply possible_bend; eauto. }
      assert (M : Rabs r <= real float32_max).
      { destruct (Rle_or_lt (Rabs r) (real float32_max)) as [L|L]; [exact L|]. elim (Calm stored fetched Y). right.
        exists k, j, b, r. auto. }
      destruct (R M) as [Fw ->]. auto.
Qed.
End Network.

(* Every number of every binary32 execution of an accepted network is finite, and is a number of an execution of
   CheckExecution.v: whichever codes of the class are used. *)
Theorem binary32_executes_network net unit groups held drawn (used : key -> sums -> code -> Prop) :
  check net unit groups = true ->
  bpow radix2 (-24) <= real unit ->
  (forall k s c, In (k, Sum s) net -> used k s c -> code_of (real unit) drawn k s c) ->
  execution32 net (real unit) held drawn used ->
  execution net (real unit) (fun k => B2R (held k)) (fun k n => B2R (drawn k n)) /\
  forall k x, possible32 net (real unit) held used k x -> is_finite x = true /\
    possible net (real unit) (fun k => B2R (held k)) (fun k n => B2R (drawn k n)) k (B2R x).
Proof.
  intros C U Cl X.
  destruct (network_carried net unit groups C U held drawn used Cl X net [] (eq_sym (app_nil_r net))) as [Y Good].
  split; [exact Y|]. intros k x V. apply Good; [|exact V].
  destruct V as [k l h I | k s I _ | k s a x I _ _ _ _ | k j x y I _ _ | k j js x xs y I _ _ _ | k j b x y I _ _];
    exact (in_map fst _ _ I).
Qed.
(* So what is accepted holds of them: whichever number each reader of an output sees, no excluded set has them. *)
Theorem binary32_network net unit groups held drawn (used : key -> sums -> code -> Prop) :
  check net unit groups = true ->
  bpow radix2 (-24) <= real unit ->
  (forall k s c, In (k, Sum s) net -> used k s c -> code_of (real unit) drawn k s c) ->
  execution32 net (real unit) held drawn used ->
  forall alts p rows y, In (alts, p) groups -> In rows alts ->
    (forall k, In k (read_by rows) -> possible32 net (real unit) held used k (y k)) ->
    ~ outputs_in (fun k => B2R (y k)) rows /\ forall k, In k (read_by rows) -> is_finite (y k) = true.
Proof.
  intros C U Cl X alts p rows y A R V.
  destruct (binary32_executes_network net unit groups held drawn used C U Cl X) as [Y Good].
  split; [|intros k H; exact (proj1 (Good k (y k) (V k H)))].
  eapply (proj2 (check_sound net unit groups C _ _ Y)); eauto. intros k H. exact (proj2 (Good k (y k) (V k H))).
Qed.

(* --- these statements are about something --- *)
(* A network that is accepted, and that has an execution at each float of its box. *)
Definition third : number := Number 11184811 (-25).
Definition third32 : float32 := @B754_finite 24 128 false 11184811 (-25) eq_refl.
Definition quarter32 : float32 := @B754_finite 24 128 false 8388608 (-25) eq_refl.
(* relu(x * third + 1/4) for x from 1 to 2 is not below 1/2. *)
Definition example_sum : sums := Sums [Term third (Some Here) false; Term (power (-2)) None false] zero 2 one true.
Definition example_network : network :=
  [(Here, Input one (of_Z 2)); (Even Here, Sum example_sum); (Odd Here, Relu (Even Here))].
Definition example_groups : list (list alternative * plan) :=
  [([[Row [(Odd Here, one)] (power (-1))]], Reasons [Reason [one] Empty [] [] Empty])].
Definition example_held (x : float32) (k : key) : float32 :=
  match k with Here => x | _ => Bplus mode_NE (Bmult mode_NE third32 x) quarter32 end.

Lemma example_accepted : check example_network (power (-24)) example_groups = true.
Proof. vm_compute. reflexivity. Qed.
Theorem example_executes x : is_finite x = true -> 1 <= B2R x <= 2 ->
  execution32 example_network (real (power (-24))) (example_held x) (fun _ _ => x)
    (code_of (real (power (-24))) (fun _ _ => x)).
Proof.
  intros F I. split; [|split].
  - intros k l h [[= <- <- <-]|[E|[E|[]]]]; try discriminate. split; [exact F|]. rewrite real_one, real_of_Z. exact I.
  - intros k s [E|[[= <- <-]|[E|[]]]] _; try discriminate.
    exists (Adds (Multiplies (Word third32) (Loaded Here x)) (Word quarter32)).
    assert (A : forall u, allowed u mode_NE) by (intros u; left; now left).
    assert (U : 0 < real (power (-24))) by (rewrite real_power; apply bpow_gt_0). pose proof least_normal_pos as T.
    split; [|split].
    + split; [now repeat split|]. cbn [written]. split; [simpl; repeat split; lra|]. split; [|split].
      * simpl. rewrite Rmax_left; nra.
      * simpl. rewrite Rmax_left by nra. set (t := least_normal) in *.
        replace ((1 + t) * ((1 + t) * (1 * 1))) with ((1 + t) ^ 2) by ring. apply (Rle_pow (1 + t) 2 12); [lra | lia].
      * eexists. split; [apply Permutation_refl|].
        assert (E3 : B2R third32 = real third) by reflexivity. assert (E4 : B2R quarter32 = real (power (-2))).
        { unfold B2R, quarter32, F2R, real. cbn [Fnum Fexp cond_Zopp mantissa exponent power].
          change (IZR (Z.pos 8388608)) with (IZR (2 ^ 23)). rewrite (IZR_Zpower radix2) by lia. rewrite <- bpow_plus.
          simpl. ring. }
        revert E3 E4. cbn [addends flat_map map app all_match example_sum terms]. unfold matches, times.
        cbn [coef wide vars weight source shared blur spread app example_sum]. generalize (B2R third32) (B2R quarter32).
        intros a b -> ->. pose proof (Rmax_l 1 (Rabs (real third))). pose proof (Rmax_l 1 (Rabs (real (power (-2))))).
        rewrite real_zero, real_one, !Rmult_1_r, !Rmult_1_l, !Rminus_diag_eq, Rabs_R0 by reflexivity.
        repeat split; try lra. exists (B2R x). split; [reflexivity | discriminate].
    + intros j w [[= <- <-]|[]].
      apply (possible32_input example_network _ (example_held x) _ Here one (of_Z 2)). now left.
    + apply (gives_adds _ mode_NE); [apply A | | constructor].
      apply (gives_multiplies _ mode_NE); [apply A | |]; constructor.
  - intros k s n p j [E|[[= <- <-]|[E|[]]]]; try discriminate. intros P H. destruct n as [|[|n]]; simpl in P;
      [injection P as <-; discriminate | injection P as <-; discriminate | destruct n; discriminate].
Qed.
