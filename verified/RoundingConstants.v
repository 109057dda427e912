(* Constants that a runtime computes while it loads, such as gamma/sqrt(var + eps): specgrad.proof.exact.node_ranges.

   `formed k v x`: x is v times a factor between (1 + u)^-k and (1 + u)^k. Each rounding counts as one, in a
   numerator and in a denominator, because numbers to nearest are within u/(1 + u). So counts add up: a product or a
   quotient of constants with j and k roundings has j + k, a sum of one sign the greater of both, a root no more than
   what it is taken of, and one more operation one more. A sum in which numbers cancel is no such constant. A
   function with a declared error of k units counts as k + 1. *)
From Coq Require Import Reals Psatz Lia.
From Flocq Require Import Core.
From Specgrad Require Import RoundingTree.
Open Scope R_scope.

Section Constants.
Variable u : R.
Hypothesis u_nonneg : 0 <= u.
Notation formed := (formed u).
Let pos k : 0 < (1 + u) ^ k.
Proof. apply pow_lt; lra. Qed.
Let inv_pos k : 0 < / (1 + u) ^ k.
Proof. apply Rinv_0_lt_compat, pos. Qed.

Lemma formed_exact v : formed 0 v v.
Proof. exists 1. simpl. rewrite Rinv_1. lra. Qed.

Lemma formed_more j k v x : (j <= k)%nat -> formed j v x -> formed k v x.
Proof.
  intros H [f [[H1 H2] E]]. exists f. split; [|exact E]. pose proof (pow_le_pow u u_nonneg _ _ H). split; [|lra].
  eapply Rle_trans; [|exact H1]. apply Rinv_le_contravar; auto.
Qed.

Let factors j k f g : / (1 + u) ^ j <= f <= (1 + u) ^ j -> / (1 + u) ^ k <= g <= (1 + u) ^ k ->
  / (1 + u) ^ (j + k) <= f * g <= (1 + u) ^ (j + k).
Proof.
  intros Hf Hg. pose proof (inv_pos j); pose proof (inv_pos k). rewrite pow_add, Rinv_mult.
  split; apply Rmult_le_compat; lra.
Qed.

(* One operation after the other. *)
Theorem formed_then j k v x y : formed j v x -> formed k x y -> formed (j + k) v y.
Proof. intros [f [Hf ->]] [g [Hg ->]]. exists (f * g). split; [now apply factors | ring]. Qed.

Theorem formed_product j k a b x y : formed j a x -> formed k b y -> formed (j + k) (a * b) (x * y).
Proof. intros [f [Hf ->]] [g [Hg ->]]. exists (f * g). split; [now apply factors | ring]. Qed.

Theorem formed_quotient j k a b x y : b <> 0 -> formed j a x -> formed k b y -> formed (j + k) (a / b) (x / y).
Proof. intros Hb Ha Hy. apply formed_product; [exact Ha | now apply formed_inv]. Qed.

(* Of one sign, so that nothing cancels. *)
Theorem formed_sum j k a b x y : 0 <= a * b -> formed j a x -> formed k b y -> formed (max j k) (a + b) (x + y).
Proof.
  intros Hs Ha Hb. apply (formed_more j (max j k)) in Ha; [|lia]. apply (formed_more k (max j k)) in Hb; [|lia].
  set (n := max j k) in *. destruct Ha as [f [[F1 F2] ->]], Hb as [g [[G1 G2] ->]].
  destruct (Req_dec (a + b) 0) as [Z | Z].
  - assert (b = - a) as -> by lra. destruct (Req_dec a 0) as [-> | N].
    2: { exfalso. pose proof (Rsqr_pos_lt a N) as S. unfold Rsqr in S. replace (a * - a) with (- (a * a)) in
      Hs by ring. lra. }
    exists 1. pose proof (one_le_pow u u_nonneg n). split; [|ring].
    split; [|assumption]. apply Rle_trans with (/ 1); [apply Rinv_le_contravar; lra | lra].
  - exists ((a * f + b * g) / (a + b)). split; [|field; exact Z].
    assert (W : exists w, 0 <= w <= 1 /\ (a * f + b * g) / (a + b) = w * f + (1 - w) * g).
    { exists (a / (a + b)). split; [|field; exact Z].
      destruct (Rle_or_lt 0 (a + b)) as [P | P].
      - assert (0 <= a /\ 0 <= b) as [A B] by (split; apply Rnot_lt_le; intro; nra). assert (0 < a + b) by lra. split.
        + apply Rmult_le_pos; [exact A | apply Rlt_le, Rinv_0_lt_compat; lra].
        + apply Rmult_le_reg_r with (a + b); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by exact Z. lra.
      - assert (a <= 0 /\ b <= 0) as [A B] by (split; apply Rnot_lt_le; intro; nra).
        replace (a / (a + b)) with (- a / - (a + b)) by (field; lra). split.
        + apply Rmult_le_pos; [lra | apply Rlt_le, Rinv_0_lt_compat; lra].
        + apply Rmult_le_reg_r with (- (a + b)); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
    destruct W as [w [W ->]]. split.
    + assert (0 <= w * (f - / (1 + u) ^ n)) by (apply Rmult_le_pos; lra).
      assert (0 <= (1 - w) * (g - / (1 + u) ^ n)) by (apply Rmult_le_pos; lra). lra.
    + assert (0 <= w * ((1 + u) ^ n - f)) by (apply Rmult_le_pos; lra).
      assert (0 <= (1 - w) * ((1 + u) ^ n - g)) by (apply Rmult_le_pos; lra). lra.
Qed.

(* The root of v*f is that of v times that of f, which is nearer to 1. *)
Theorem formed_root k v x : 0 <= v -> formed k v x -> formed k (sqrt v) (sqrt x).
Proof.
  intros Hv [f [[H1 H2] ->]]. pose proof (inv_pos k). pose proof (one_le_pow u u_nonneg k).
  exists (sqrt f). split; [|apply sqrt_mult; lra]. set (g := (1 + u) ^ k) in *.
  assert (Hi : / g <= 1) by (rewrite <- Rinv_1; apply Rinv_le_contravar; lra).
  pose proof (sqrt_pos f) as Sf. pose proof (sqrt_sqrt f ltac:(lra)) as SS. split.
  - destruct (Rle_or_lt (/ g) (sqrt f)) as [L | L]; [exact L|]. exfalso. nra.
  - destruct (Rle_or_lt (sqrt f) g) as [L | L]; [exact L|]. exfalso. nra.
Qed.

(* A function that is off by at most k*u of its result, cut off to some bits: counted as k + 1. *)
Theorem formed_declared k v x c : INR k * (INR k + 1) * u <= / 2 -> Rabs c <= u / 2 -> u <= 1 ->
  Rabs (x - v) <= INR k * u * Rabs v -> formed (S k) (v * (1 + c)) x.
Proof.
  intros Hk Hc Hu Hx. apply Rabs_le_inv in Hc. pose proof (pos_INR k) as Pk.
  destruct (Req_dec v 0) as [-> | Hv].
  { rewrite Rabs_R0, Rmult_0_r, Rminus_0_r in Hx. pose proof (Rabs_pos x).
    assert (x = 0) as -> by (destruct (Req_dec x 0) as [-> | N]; [reflexivity | pose proof (Rabs_pos_lt x N); lra]).
    rewrite Rmult_0_l. apply (formed_more 0); [lia | apply formed_exact]. }
  set (f := x / v). assert (Hf : Rabs (f - 1) <= INR k * u).
  { apply Rmult_le_reg_r with (Rabs v); [now apply Rabs_pos_lt|]. rewrite <- Rabs_mult.
    unfold f. replace ((x / v - 1) * v) with (x - v) by (field; exact Hv). exact Hx. }
  apply Rabs_le_inv in Hf. assert (Bern : 1 + (INR k + 1) * u <= (1 + u) ^ S k).
  { clear - u_nonneg. induction k; [simpl; lra|]. rewrite S_INR. change ((1 + u) ^ S (S k))
      with ((1 + u) * (1 + u) ^ S k).
    pose proof (pos_INR k). assert (0 <= (INR k + 1) * u) by (apply Rmult_le_pos; lra). nra. }
  exists (f / (1 + c)). split; [|unfold f; field; split; [exact Hv | lra]].
  set (g := (1 + u) ^ S k) in *. assert (Hg : 0 < g) by (pose proof (pos (S k)); assumption). split.
  - apply Rmult_le_reg_l with (g * (1 + c)); [apply Rmult_lt_0_compat; lra|].
    replace (g * (1 + c) * / g) with (1 + c) by (field; lra).
    replace (g * (1 + c) * (f / (1 + c))) with (g * f) by (field; lra).
    assert (0 <= INR k * u <= / 2) by (split; [apply Rmult_le_pos; lra | nra]).
    assert ((1 + (INR k + 1) * u) * (1 - INR k * u) <= g * f) by (apply Rmult_le_compat; nra).
    assert (INR k * (INR k + 1) * u * u <= / 2 * u) by (apply Rmult_le_compat_r; lra). lra.
  - apply Rmult_le_reg_r with (1 + c); [lra|].
    replace (f / (1 + c) * (1 + c)) with f by (field; lra).
    apply Rle_trans with (1 + INR k * u); [lra|].
    assert (0 <= (INR k + 1) * u <= 1) as [K0 K1].
    { split; [apply Rmult_le_pos; lra|]. destruct k as [|k]; [simpl; lra|]. rewrite S_INR in *. pose proof (pos_INR k).
      assert (0 <= INR k * ((INR k + 1 + 1) * u)) by (repeat apply Rmult_le_pos; lra). lra. }
    assert ((1 + (INR k + 1) * u) * (1 - u / 2) <= g * (1 + c)) by (apply Rmult_le_compat; lra).
    assert ((INR k + 1) * u * (u / 2) <= 1 * (u / 2)) by (apply Rmult_le_compat_r; lra). lra.
Qed.
End Constants.
