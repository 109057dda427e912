(** Windows: which cell of the input a tap of an output reads.

    A window is a product of axes, each strided (kernel, stride, dilation, padding in front and behind), adaptive (so
    many cells, which share the input) or grouped (the channels of a convolution). An axis maps an output position
    and a tap to a place, which lies in the input or beyond: then the tap is padded. Everything with windows is
    stated with this relation alone: forwards it gathers, backwards it scatters, and both speak of one `reads`, so
    that they cannot disagree about a coordinate. The theorems here say that what is read lies inside; Sizes.v says
    how many positions there are. *)
From Coq Require Import ZArith List Bool Lia.
Import ListNotations.
Open Scope Z_scope.

(** One axis: strided (input size n, kernel, stride s, dilation e, padding, output positions), adaptive, or the channel
   axis of a convolution in groups: an output channel reads the input channels of its group. *)
Inductive axis :=
  | Strided (size kernel stride dilation lo hi out : Z)
  | Adaptive (size out : Z)
  | Grouped (groups size out : Z).

Definition size a := match a with Strided n _ _ _ _ _ _ => n | Adaptive n _ => n | Grouped _ n _ => n end.
Definition out a := match a with Strided _ _ _ _ _ _ m => m | Adaptive _ m => m | Grouped _ _ m => m end.
(** Taps that a position may have; an adaptive cell has some of them. *)
Definition kernel a := match a with Strided _ k _ _ _ _ _ => k | Adaptive n _ => n | Grouped g n _ => n / g end.

Definition ceil_div a b := - (- a / b).
Definition start n m o := o * n / m.
Definition stop n m o := ceil_div ((o + 1) * n) m.

(** The position that tap t of output o reads, in the input, in its padding or beyond; None: the cell has no such
   tap. *)
Definition place a o t : option Z :=
  match a with
  | Strided _ _ s e lo _ _ => Some (s * o + e * t - lo)
  | Adaptive n m => if start n m o + t <? stop n m o then Some (start n m o + t) else None
  | Grouped g n m => Some (o / (m / g) * (n / g) + t)
  end.

Definition within low high i := (low <=? i) && (i <? high).
(** The input cell that it reads; None: a padded tap. *)
Definition reads a o t : option Z :=
  match place a o t with
  | Some i => if within 0 (size a) i then Some i else None
  | None => None
  end.

(** A window is the product of its axes. Positions, row-major: the last index runs fastest. *)
Definition range n : list Z := map Z.of_nat (seq 0 (Z.to_nat n)).
Fixpoint positions (shape : list Z) : list (list Z) :=
  match shape with
  | [] => [[]]
  | n :: rest => flat_map (fun i => map (cons i) (positions rest)) (range n)
  end.
Fixpoint reads_all (w : list axis) (o t : list Z) : option (list Z) :=
  match w, o, t with
  | [], [], [] => Some []
  | a :: w, o :: os, t :: ts =>
      match reads a o t, reads_all w os ts with Some i, Some is => Some (i :: is) | _, _ => None end
  | _, _, _ => None
  end.

Definition ins w := positions (map size w).
Definition outs w := positions (map out w).
Definition taps w := positions (map kernel w).

Lemma within_spec low high i : within low high i = true <-> low <= i < high.
Proof. unfold within. rewrite andb_true_iff, Z.leb_le, Z.ltb_lt. reflexivity. Qed.

(** [W1] What a tap reads lies inside the input. *)
Theorem reads_inside a o t i : reads a o t = Some i -> 0 <= i < size a.
Proof.
  unfold reads. destruct (place a o t) as [j|]; [|discriminate].
  destruct (within 0 (size a) j) eqn:H; [|discriminate]. intros [= <-]. now apply within_spec.
Qed.

Lemma in_range n i : In i (range n) <-> 0 <= i < n.
Proof.
  unfold range. rewrite in_map_iff. split.
  - intros (k & <- & H). apply in_seq in H. lia.
  - intros H. exists (Z.to_nat i). rewrite in_seq. lia.
Qed.

Lemma in_positions shape p : In p (positions shape) <-> Forall2 (fun i n => 0 <= i < n) p shape.
Proof.
  revert p. induction shape as [|n rest IH]; intros p; simpl.
  - split; [intros [<-|[]]; constructor | intros H; inversion H; auto].
  - rewrite in_flat_map. split.
    + intros (i & Hi & H). apply in_map_iff in H. destruct H as (q & <- & Hq).
      constructor; [now apply in_range | now apply IH].
    + intros H. inversion H as [|i m q r Hi Hq]; subst. exists i. split; [now apply in_range|]. apply in_map, IH, Hq.
Qed.

(** [W1] So it is of any product of axes. *)
Theorem reads_all_inside w o t i : reads_all w o t = Some i -> In i (ins w).
Proof.
  unfold ins. rewrite in_positions. revert o t i. induction w as [|a w IH]; intros [|o os] [|t ts] i; simpl;
    try discriminate.
  - intros [= <-]. constructor.
  - destruct (reads a o t) eqn:R; [|discriminate]. destruct (reads_all w os ts) eqn:S; [|discriminate].
    intros [= <-]. constructor; [eapply reads_inside; eauto | eauto].
Qed.
