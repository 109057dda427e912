(* Sums of products: how many roundings a term meets.

   The counts are those of specgrad: n for a sum of n products, in any order, with or without FMA, a bias being one
   more term; f more where each coefficient is formed with f roundings first; k + 1 for an average of k cells. A
   balanced tree has fewer, and the count of n is what the worst order has: the first product is rounded once, and
   then by each of the n - 1 additions. Each theorem is an induction over all trees that add up such terms. That R of
   a region is the most over all ways to cut it into parts is not proven here. *)
From Coq Require Import Reals Lia.
From Specgrad Require Import RoundingTree.
Open Scope R_scope.

(* --- counts ------------------------------------------------------------------------------------------------------- *)

(* `sum_of f n t`: t adds up n terms in some order. A term has met f roundings before it is multiplied: of its
   coefficient, and of the value that it reads. Additive constants are terms that are not multiplied. *)
Inductive sum_of (f : nat) : nat -> tree -> Prop :=
  | sum_product a b : (roundings a + roundings b <= f)%nat -> sum_of f 1 (Mul a b)
  | sum_constant a : (roundings a <= S f)%nat -> sum_of f 1 a
  | sum_neg n a : sum_of f n a -> sum_of f n (Neg a)
  | sum_add n m a b : sum_of f n a -> sum_of f m b -> sum_of f (n + m) (Add a b)
  | sum_sub n m a b : sum_of f n a -> sum_of f m b -> sum_of f (n + m) (Sub a b)
  | sum_fma n a b c : (roundings a + roundings b <= f)%nat -> sum_of f n c -> sum_of f (S n) (Fma a b c).

Lemma sum_terms f n t : sum_of f n t -> (1 <= n)%nat.
Proof. intros H; induction H; lia. Qed.

(* conv, linear: n = products + [bias]. With f: Front.total = before + folded + terms; with what a value had met before,
   the path of node counts. *)
Theorem sum_roundings f n t : sum_of f n t -> (roundings t <= f + n)%nat.
Proof.
  intros H; induction H; simpl; try lia.
  - pose proof (sum_terms _ _ _ H). pose proof (sum_terms _ _ _ H0). lia.
  - pose proof (sum_terms _ _ _ H). pose proof (sum_terms _ _ _ H0). lia.
Qed.

(* A sum of n values that are not multiplied: n - 1. *)
Inductive plain_sum (f : nat) : nat -> tree -> Prop :=
  | plain_term a : (roundings a <= f)%nat -> plain_sum f 1 a
  | plain_add n m a b : plain_sum f n a -> plain_sum f m b -> plain_sum f (n + m) (Add a b).

Theorem plain_roundings f n t : plain_sum f n t -> (1 <= n /\ roundings t <= f + (n - 1))%nat.
Proof. intros H; induction H; simpl; lia. Qed.

(* An average of n cells: divided, by the divisor or by one per axis, or multiplied with its reciprocal, before the sum
   or behind it. f roundings of its cells before; j of the divisor itself: 0 if the format holds it. *)
Inductive average_of (f j n : nat) : tree -> Prop :=
  | average_divided a v : plain_sum f n a -> average_of f j n (Div a v j)
  | average_by_axes a v w : plain_sum f n a -> average_of f j n (Div (Div a v 0) w j)
  | average_reciprocal a v : plain_sum f n a -> average_of f j n (Mul a (Recip v j))
  | average_reciprocal_first a v : plain_sum f n a -> average_of f j n (Mul (Recip v j) a)
  | average_constant a v : plain_sum f n a -> average_of f j n (Mul a (Const v (S j)))
  | average_of_products a : sum_of (f + S j) n a -> average_of f j n a.

Theorem average_roundings f j n t : average_of f j n t -> (roundings t <= f + n + 1 + j)%nat.
Proof.
  intros H; destruct H as [a v H | a v w H | a v H | a v H | a v H | a H];
    try (apply plain_roundings in H; simpl; lia). apply sum_roundings in H. lia.
Qed.

(* --- a batch normalisation behind a convolution ------------------------------------------------------------------- *)

(* s = gamma/sqrt(var + eps), formed with k roundings, is multiplied into each weight; (b - mean)*s + beta is one
   constant. n terms, that constant included. *)
Definition folded_weight w s k := Mul (Leaf w) (Const s k).
Definition folded_bias b mean s beta k := Add (Mul (Sub (Leaf b) (Leaf mean)) (Const s k)) (Leaf beta).

Inductive folded_batch_norm (s : R) (k : nat) : nat -> tree -> Prop :=
  | folded_product w x : folded_batch_norm s k 1 (Mul (folded_weight w s k) (Leaf x))
  | folded_constant b mean beta : folded_batch_norm s k 1 (folded_bias b mean s beta k)
  | folded_add n m a b : folded_batch_norm s k n a -> folded_batch_norm s k m b ->
    folded_batch_norm s k (n + m) (Add a b)
  | folded_fma n w x c : folded_batch_norm s k n c ->
    folded_batch_norm s k (S n) (Fma (folded_weight w s k) (Leaf x) c).

Theorem folded_batch_norm_roundings s k n t : folded_batch_norm s k n t -> (roundings t <= (k + 2) + n)%nat.
Proof.
  intros H. apply sum_roundings. induction H.
  - apply sum_product. simpl; lia.
  - apply sum_constant. simpl; lia.
  - now apply sum_add.
  - apply sum_fma; [simpl; lia | assumption].
Qed.

(* The normalisation after it, by itself: x - mean, times s, plus beta. *)
Theorem batch_norm_roundings x mean s beta k :
  roundings (Add (Mul (Sub (Leaf x) (Leaf mean)) (Const s k)) (Leaf beta)) = (k + 3)%nat.
Proof. simpl; lia. Qed.
