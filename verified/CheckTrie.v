(* Sparse vectors by cell: a binary trie, and the sum of its entries times the values of the cells.

   A cell's key is its number in binary, last digit first, so a trie needs no order and no balancing: it forks by
   digits. It holds coefficients of a linear form (`form_at f y`: the sum of a_k * y_k), ranges of cells, or slopes
   that somebody gives as hints. `put` and `get` are proven to be what they seem, and adding to an entry adds to the
   sum. *)
From Coq Require Import Reals Lra.
From Specgrad Require Import CheckNumber.
Open Scope R_scope.

(* the number of a cell, last binary digit first *)
Inductive key := Here | Even (k : key) | Odd (k : key).
Inductive trie (A : Type) := Empty | Fork (here : option A) (even odd : trie A).
Arguments Empty {A}.
Arguments Fork {A} here even odd.

Fixpoint get {A} (k : key) (t : trie A) {struct t} : option A :=
  match t with
  | Empty => None
  | Fork h e o => match k with Here => h | Even k => get k e | Odd k => get k o end
  end.
Definition fork {A} (h : option A) (e o : trie A) : trie A :=
  match h, e, o with None, Empty, Empty => Empty | _, _, _ => Fork h e o end.
Fixpoint put {A} (k : key) (v : option A) (t : trie A) {struct k} : trie A :=
  match t with
  | Empty => match k with Here => fork v Empty Empty | Even k => fork None (put k v Empty) Empty
    | Odd k => fork None Empty (put k v Empty) end
  | Fork h e o => match k with Here => fork v e o | Even k => fork h (put k v e) o | Odd k => fork h e (put k v o) end
  end.

Lemma get_fork {A} k (h : option A) e o : get k (fork h e o) = get k (Fork h e o).
Proof. destruct h, e, o; auto. destruct k; auto. Qed.
Lemma get_put_same {A} k (v : option A) : forall t, get k (put k v t) = v.
Proof. induction k; intros [|h e o]; cbn [put]; rewrite get_fork; cbn [get]; auto. Qed.
Lemma get_put_other {A} k j (v : option A) : k <> j -> forall t, get j (put k v t) = get j t.
Proof.
  revert j. induction k; intros j N [|h e o]; cbn [put]; rewrite get_fork; destruct j; cbn [get]; auto; try congruence;
    rewrite IHk by congruence; destruct j; auto.
Qed.
Lemma key_dec (k j : key) : {k = j} + {k <> j}.
Proof. decide equality. Defined.

(* The sum of a_k * f k over all entries. *)
Definition coefficient (a : option number) : R := match a with None => 0 | Some x => real x end.
Fixpoint form_at (t : trie number) (f : key -> R) : R :=
  match t with
  | Empty => 0
  | Fork h e o => coefficient h * f Here + form_at e (fun k => f (Even k)) + form_at o (fun k => f (Odd k))
  end.
Lemma total_fork h e o f : form_at (fork h e o) f = form_at (Fork h e o) f.
Proof. destruct h, e, o; simpl; auto; unfold coefficient; ring. Qed.
Lemma total_put k v : forall t f, form_at (put k v t) f = form_at t f + (coefficient v - coefficient (get k t)) * f k.
Proof.
  induction k; intros [|h e o] f; cbn [put]; rewrite total_fork; cbn [form_at get]; try rewrite IHk; simpl; ring.
Qed.
