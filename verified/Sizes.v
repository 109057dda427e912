(** Output sizes of windows: how many there are, and that they are exactly the windows that fit.

    The formulas are those of the contract: rounded down, rounded up (`ceil`, by which a window may hang over, but
    not begin in the padding behind), "same", and the size of a transposed convolution. Each theorem says what a
    formula counts: o is a position exactly where its window ends inside. A transposed convolution is read backwards
    along an axis that has the given positions; `more`, output_padding, adds cells behind, and a convolution over the
    result has `more / s` positions more: none where it is below the stride, some where a dilation lets it be
    greater. Last, a call is refused exactly where a size is wrong or no window fits. *)
From Coq Require Import ZArith Bool Lia.
From Specgrad Require Import Window.
Open Scope Z_scope.

Definition span k e := e * (k - 1) + 1.
Definition floor_out n k s e lo hi := (n + lo + hi - span k e) / s + 1.
Definition ceil_out n k s e lo hi :=
  let m := ceil_div (n + lo + hi - span k e) s + 1 in if n + lo <=? (m - 1) * s then m - 1 else m.
Definition same_total n k s e := Z.max 0 ((ceil_div n s - 1) * s + span k e - n).
Definition transposed_size n k s e lo hi more := (n - 1) * s - lo - hi + span k e + more.

Lemma below_floor a s q : 0 < s -> q <= a / s <-> s * q <= a.
Proof. intros. pose proof (Z.div_mod a s). pose proof (Z.mod_pos_bound a s). nia. Qed.
Lemma below_ceil a s q : 0 < s -> q <= ceil_div a s <-> s * q <= a + s - 1.
Proof.
  intros. unfold ceil_div. pose proof (Z.div_mod (- a) s). pose proof (Z.mod_pos_bound (- a) s). nia.
Qed.

(** [W2] Output position o exists exactly where its window ends inside the padded input, and there is one if a window
   fits. *)
Theorem floor_out_counts n k s e lo hi o : 1 <= s -> 
  o < floor_out n k s e lo hi <-> s * o + span k e <= n + lo + hi.
Proof. intros. unfold floor_out. pose proof (below_floor (n + lo + hi - span k e) s o). lia. Qed.
Theorem floor_out_positive n k s e lo hi : 1 <= s -> 1 <= floor_out n k s e lo hi <-> span k e <= n + lo + hi.
Proof. intros. pose proof (floor_out_counts n k s e lo hi 0). lia. Qed.

(** [W3] Under ceil a window may hang over by up to s-1 cells; the last of them is dropped if it starts in the high
   padding. *)
Definition hangs n k s e lo hi o := s * o + span k e <= n + lo + hi + s - 1.
Theorem ceil_out_counts n k s e lo hi o : 1 <= s -> 
  o < ceil_out n k s e lo hi <-> hangs n k s e lo hi o /\ (hangs n k s e lo hi (o + 1) \/ s * o < n + lo).
Proof.
  intros S. unfold ceil_out, hangs. set (c := ceil_div _ s).
  pose proof (below_ceil (n + lo + hi - span k e) s o) as A.
  pose proof (below_ceil (n + lo + hi - span k e) s (o + 1)) as B.
  fold c in A, B. replace (c + 1 - 1) with c by ring.
  destruct (n + lo <=? c * s) eqn:E; [apply Z.leb_le in E | apply Z.leb_gt in E]; split; intros H.
  - split; [lia|]. left. lia.
  - destruct H as [H1 [H2|H2]]; [lia|]. assert (o <= c) by lia. assert (o <> c) by nia. lia.
  - split; [lia|]. assert (o < c \/ o = c) as [L|L] by lia; [left; lia | right; nia].
  - lia.
Qed.
(** [W2] Under ceil there is a window exactly if one fits s-1 cells more. *)
Theorem ceil_out_positive n k s e lo hi : 1 <= s -> 1 <= n -> 0 <= lo ->
  1 <= ceil_out n k s e lo hi <-> span k e <= n + lo + hi + s - 1.
Proof. intros. pose proof (ceil_out_counts n k s e lo hi 0). unfold hangs in *. lia. Qed.

(** [same] With this padding there are ceil(n/s) positions, whichever side has the odd cell. *)
Theorem same_out n k s e lo hi : 1 <= n -> 1 <= k -> 1 <= s -> 1 <= e -> lo + hi = same_total n k s e ->
  floor_out n k s e lo hi = ceil_div n s.
Proof.
  intros N K S E T. unfold same_total in T. set (c := ceil_div n s) in *.
  pose proof (below_ceil n s c) as A. pose proof (below_ceil n s (c + 1)) as B. fold c in A, B.
  pose proof (floor_out_counts n k s e lo hi (c - 1)) as C. pose proof (floor_out_counts n k s e lo hi c) as D.
  assert (1 <= span k e) by (unfold span; nia).
  assert (s * c >= n) by nia. assert (s * (c - 1) < n) by nia.
  assert (c - 1 < floor_out n k s e lo hi) by (apply C; lia).
  assert (~ c < floor_out n k s e lo hi) by (rewrite D by lia; lia).
  lia.
Qed.

(** [C2] A convolution over what conv_transpose gives has the positions that conv_transpose was given, and one more for
    every s cells of `more`. *)
Theorem transposed_size_out n k s e lo hi more : 1 <= s ->
  floor_out (transposed_size n k s e lo hi more) k s e lo hi = n + more / s.
Proof.
  intros S. unfold floor_out, transposed_size, span.
  replace (_ + lo + hi - _) with (more + (n - 1) * s) by ring. rewrite Z.div_add by lia. ring.
Qed.
(** [C2] So it has exactly these positions where `more` is below the stride. Where the dilation is greater, `more` may
   be up to that: then it has more of them. *)
Theorem transposed_size_inverse n k s e lo hi more : 1 <= s -> 0 <= more ->
  floor_out (transposed_size n k s e lo hi more) k s e lo hi = n <-> more < s.
Proof.
  intros S M. rewrite transposed_size_out by exact S. pose proof (Z.div_mod more s).
  pose proof (Z.mod_pos_bound more s).
  pose proof (Z.div_pos more s). split; intros; nia.
Qed.

(** [W1] A tap that reads nothing is padded: its position lies outside the input. *)
Theorem padded_outside n k s e lo hi m o t :
  reads (Strided n k s e lo hi m) o t = None <-> s * o + e * t - lo < 0 \/ n <= s * o + e * t - lo.
Proof.
  unfold reads, place, size. destruct (within _ _ _) eqn:W.
  - apply within_spec in W. split; [discriminate | lia].
  - split; [|reflexivity]. intros _. destruct (Z_lt_le_dec (s * o + e * t - lo) 0); [now left|].
    destruct (Z_lt_le_dec (s * o + e * t - lo) n); [|now right]. 
    assert (within 0 n (s * o + e * t - lo) = true) by (apply within_spec; lia). congruence.
Qed.

(** Every adaptive cell lies inside the input and has a tap. *)
Theorem adaptive_cell n m o : 1 <= n -> 0 <= o < m -> 0 <= start n m o < stop n m o /\ stop n m o <= n.
Proof.
  intros N O. unfold start, stop.
  pose proof (below_floor (o * n) m 0). pose proof (below_ceil ((o + 1) * n) m (o * n / m + 1)).
  pose proof (below_ceil ((o + 1) * n) m (n + 1)). pose proof (Z.div_mod (o * n) m).
  pose proof (Z.mod_pos_bound (o * n) m).
  assert (ceil_div ((o + 1) * n) m < n + 1) by (apply Z.nle_gt; intros H'; apply H1 in H'; nia).
  nia.
Qed.
(** A cell that is read by an adaptive window lies in [start, stop). *)
Theorem adaptive_reads n m o t : 1 <= n -> 0 <= o < m -> 0 <= t ->
  reads (Adaptive n m) o t = if start n m o + t <? stop n m o then Some (start n m o + t) else None.
Proof.
  intros N O T. unfold reads, place, size. destruct (_ <? _) eqn:E; [|reflexivity]. apply Z.ltb_lt in E.
  pose proof (adaptive_cell n m o N O). replace (within 0 n _) with true; [reflexivity|]. symmetry. apply within_spec.
  lia.
Qed.

(** What a call gives, as an axis; None: refused by [W1], [W2] or [C2]. *)
Definition positive n k s e lo hi := (1 <=? n) && (1 <=? k) && (1 <=? s) && (1 <=? e) && (0 <=? lo) && (0 <=? hi).
Definition strided_axis n k s e lo hi (ceil : bool) :=
  let m := if ceil then ceil_out n k s e lo hi else floor_out n k s e lo hi in
  if positive n k s e lo hi && (1 <=? m) then Some (Strided n k s e lo hi m) else None.
Definition same_axis n k s e (upper : bool) :=
  let total := same_total n k s e in
  let less := total / 2 in
  if upper then strided_axis n k s e less (total - less) false else strided_axis n k s e (total - less) less false.
(** The axis along which conv_transpose reads backwards: it has n output positions over the cells that it gives. *)
Definition transposed_axis n k s e lo hi more :=
  let size := transposed_size n k s e lo hi more in
  if positive n k s e lo hi && (0 <=? more) && (more <? Z.max s e) && (1 <=? size)
    then Some (Strided size k s e lo hi n) else None.
(** [C2] What conv_transpose reads backwards: an accepted axis has the given positions, over as many cells as the size
    formula says, and all of its windows lie inside them and the padding, whatever `more` is. *)
Theorem transposed_axis_fits n k s e lo hi more a : transposed_axis n k s e lo hi more = Some a ->
  out a = n /\ size a = transposed_size n k s e lo hi more /\ 1 <= size a /\ 0 <= more < Z.max s e /\
  n <= floor_out (size a) k s e lo hi.
Proof.
  unfold transposed_axis, positive. destruct (_ && _) eqn:P; [|discriminate]. intros [= <-].
  rewrite !andb_true_iff, !Z.leb_le, Z.ltb_lt in P. unfold out, size. rewrite transposed_size_out by tauto.
  pose proof (Z.div_pos more s). intuition lia.
Qed.
(** [C2] It is refused exactly if a size is wrong, output_padding is not below max(s, e), or no cell is left. *)
Theorem transposed_axis_refused n k s e lo hi more : transposed_axis n k s e lo hi more = None <->
  ~ (1 <= n /\ 1 <= k /\ 1 <= s /\ 1 <= e /\ 0 <= lo /\ 0 <= hi /\ 0 <= more < Z.max s e /\
     1 <= transposed_size n k s e lo hi more).
Proof.
  unfold transposed_axis, positive. destruct (_ && _) eqn:P.
  - rewrite !andb_true_iff, !Z.leb_le, Z.ltb_lt in P. split; [discriminate | tauto].
  - split; [|reflexivity]. intros _ (N & K & S & E & L & H & [M M'] & T). apply Z.ltb_lt in M'.
    rewrite M' in P. repeat rewrite (proj2 (Z.leb_le _ _)) in P by assumption. discriminate.
Qed.
Definition adaptive_axis n m := if (1 <=? n) && (1 <=? m) then Some (Adaptive n m) else None.

(** [W2] A call is refused exactly if a size is wrong or no window fits. *)
Theorem strided_axis_refused n k s e lo hi ceil : strided_axis n k s e lo hi ceil = None <->
  ~ (1 <= n /\ 1 <= k /\ 1 <= s /\ 1 <= e /\ 0 <= lo /\ 0 <= hi /\
     span k e <= n + lo + hi + (if ceil then s - 1 else 0)).
Proof.
  unfold strided_axis. destruct (positive n k s e lo hi) eqn:P; unfold positive in P.
  - rewrite !andb_true_iff, !Z.leb_le in P. destruct P as (((((N & K) & S) & E) & L) & H). simpl.
    pose proof (floor_out_positive n k s e lo hi S). pose proof (ceil_out_positive n k s e lo hi S N L).
    destruct ceil; (destruct (1 <=? _) eqn:M; [apply Z.leb_le in M | apply Z.leb_gt in M]); split; try easy;
      intuition lia.
  - split; [|reflexivity]. intros _ (N & K & S & E & L & H & _).
    repeat rewrite (proj2 (Z.leb_le _ _)) in P by assumption. discriminate.
Qed.
(** [same] It is never refused, and has ceil(n/s) positions. *)
Theorem same_axis_out n k s e upper : 1 <= n -> 1 <= k -> 1 <= s -> 1 <= e ->
  exists a, same_axis n k s e upper = Some a /\ out a = ceil_div n s.
Proof.
  intros N K S E. unfold same_axis. set (total := same_total n k s e).
  assert (0 <= total) by (unfold total, same_total; lia).
  assert (0 <= total / 2 <= total) by (pose proof (Z.div_mod total 2); pose proof (Z.mod_pos_bound total 2); lia).
  assert (1 <= ceil_div n s) by (apply below_ceil; lia).
  destruct upper; unfold strided_axis; rewrite (same_out n k s e) by (fold total; lia);
    (replace (positive _ _ _ _ _ _) with true by (symmetry; unfold positive; rewrite !andb_true_iff, !Z.leb_le; lia));
    rewrite (proj2 (Z.leb_le _ _)) by assumption; eexists; split; reflexivity.
Qed.
(** [W1] What is accepted has at least one position and one cell. *)
Theorem axes_not_empty n k s e lo hi ceil a : strided_axis n k s e lo hi ceil = Some a -> 1 <= out a /\ 1 <= size a /\
  1 <= kernel a.
Proof.
  unfold strided_axis, positive. destruct (_ && _) eqn:P; [|discriminate]. intros [= <-].
  rewrite !andb_true_iff, !Z.leb_le in P. unfold out, size, kernel. tauto.
Qed.
