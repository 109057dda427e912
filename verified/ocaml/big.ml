(* Integers of Zarith, under names that the extracted code cannot shadow. *)
include Z

let doubled x = Z.shift_left x 1
let doubled_succ x = Z.succ (Z.shift_left x 1)

let positive_case odd even one p =
  if Z.equal p Z.one then one ()
  else if Z.is_odd p then odd (Z.shift_right p 1)
  else even (Z.shift_right p 1)

let z_case zero pos neg z =
  match Z.sign z with 0 -> zero () | s -> if s > 0 then pos z else neg (Z.neg z)

let compare_case eq lt gt x y = match Z.compare x y with 0 -> eq | s -> if s < 0 then lt else gt

(* Coq's division rounds down, and x / 0 = 0, x mod 0 = x *)
let div_floor x y = if Z.sign y = 0 then Z.zero else Z.fdiv x y
let mod_floor x y = if Z.sign y = 0 then x else Z.sub x (Z.mul y (Z.fdiv x y))
