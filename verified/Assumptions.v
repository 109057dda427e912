Require Specgrad.AvgPool.
Goal True. idtac "theorem AvgPool.avg_pool_adjoint". Abort. Print Assumptions Specgrad.AvgPool.avg_pool_adjoint.
Goal True. idtac "theorem AvgPool.avg_pool_value". Abort. Print Assumptions Specgrad.AvgPool.avg_pool_value.
Goal True. idtac "theorem AvgPool.inside_counts_cells". Abort. Print Assumptions Specgrad.AvgPool.inside_counts_cells.
Goal True. idtac "theorem AvgPool.avg_pool_empty". Abort. Print Assumptions Specgrad.AvgPool.avg_pool_empty.
Goal True. idtac "theorem AvgPool.padded_counts_kernel". Abort. Print Assumptions Specgrad.AvgPool.padded_counts_kernel.
Goal True. idtac "theorem AvgPool.avg_pool_is_depthwise_conv". Abort. Print Assumptions Specgrad.AvgPool.avg_pool_is_depthwise_conv.
Require Specgrad.Check.
Goal True. idtac "theorem Check.check_sound". Abort. Print Assumptions Specgrad.Check.check_sound.
Require Specgrad.CheckBackward.
Goal True. idtac "theorem CheckBackward.back_ok". Abort. Print Assumptions Specgrad.CheckBackward.back_ok.
Require Specgrad.CheckExecution.
Require Specgrad.CheckFloat32.
Goal True. idtac "theorem CheckFloat32.float32_rounds". Abort. Print Assumptions Specgrad.CheckFloat32.float32_rounds.
Goal True. idtac "theorem CheckFloat32.float32_rounds_any". Abort. Print Assumptions Specgrad.CheckFloat32.float32_rounds_any.
Goal True. idtac "theorem CheckFloat32.flushed_reads". Abort. Print Assumptions Specgrad.CheckFloat32.flushed_reads.
Require Specgrad.CheckForward.
Goal True. idtac "theorem CheckForward.forward_ok". Abort. Print Assumptions Specgrad.CheckForward.forward_ok.
Require Specgrad.CheckNumber.
Require Specgrad.CheckSums.
Require Specgrad.CheckTrees.
Goal True. idtac "theorem CheckTrees.any_tree". Abort. Print Assumptions Specgrad.CheckTrees.any_tree.
Require Specgrad.CheckTrie.
Require Specgrad.Conv.
Goal True. idtac "theorem Conv.grouped_reads". Abort. Print Assumptions Specgrad.Conv.grouped_reads.
Goal True. idtac "theorem Conv.conv_transpose_adjoint_of_conv". Abort. Print Assumptions Specgrad.Conv.conv_transpose_adjoint_of_conv.
Goal True. idtac "theorem Conv.conv_adjoint". Abort. Print Assumptions Specgrad.Conv.conv_adjoint.
Goal True. idtac "theorem Conv.conv_transpose_adjoint". Abort. Print Assumptions Specgrad.Conv.conv_transpose_adjoint.
Goal True. idtac "theorem Conv.conv_expansion". Abort. Print Assumptions Specgrad.Conv.conv_expansion.
Require Specgrad.GlobalPool.
Goal True. idtac "theorem GlobalPool.global_avg_is_adaptive". Abort. Print Assumptions Specgrad.GlobalPool.global_avg_is_adaptive.
Goal True. idtac "theorem GlobalPool.global_max_is_adaptive". Abort. Print Assumptions Specgrad.GlobalPool.global_max_is_adaptive.
Goal True. idtac "theorem GlobalPool.global_max_adjoint". Abort. Print Assumptions Specgrad.GlobalPool.global_max_adjoint.
Goal True. idtac "theorem GlobalPool.global_max_tangent". Abort. Print Assumptions Specgrad.GlobalPool.global_max_tangent.
Goal True. idtac "theorem GlobalPool.global_max_cotangent". Abort. Print Assumptions Specgrad.GlobalPool.global_max_cotangent.
Goal True. idtac "theorem GlobalPool.maximisers_some". Abort. Print Assumptions Specgrad.GlobalPool.maximisers_some.
Require Specgrad.Laws.
Goal True. idtac "theorem Laws.gather_additive". Abort. Print Assumptions Specgrad.Laws.gather_additive.
Goal True. idtac "theorem Laws.gather_homogeneous". Abort. Print Assumptions Specgrad.Laws.gather_homogeneous.
Goal True. idtac "theorem Laws.scatter_additive". Abort. Print Assumptions Specgrad.Laws.scatter_additive.
Goal True. idtac "theorem Laws.scatter_homogeneous". Abort. Print Assumptions Specgrad.Laws.scatter_homogeneous.
Goal True. idtac "theorem Laws.batch_is_samples". Abort. Print Assumptions Specgrad.Laws.batch_is_samples.
Goal True. idtac "theorem Laws.adaptive_is_strided". Abort. Print Assumptions Specgrad.Laws.adaptive_is_strided.
Require Specgrad.MaxPool.
Goal True. idtac "theorem MaxPool.take_put_adjoint". Abort. Print Assumptions Specgrad.MaxPool.take_put_adjoint.
Goal True. idtac "theorem MaxPool.max_pool_adjoint". Abort. Print Assumptions Specgrad.MaxPool.max_pool_adjoint.
Goal True. idtac "theorem MaxPool.max_pool_greatest". Abort. Print Assumptions Specgrad.MaxPool.max_pool_greatest.
Goal True. idtac "theorem MaxPool.max_pool_first". Abort. Print Assumptions Specgrad.MaxPool.max_pool_first.
Goal True. idtac "theorem MaxPool.max_pool_empty". Abort. Print Assumptions Specgrad.MaxPool.max_pool_empty.
Require Specgrad.Numbers.
Require Specgrad.Readers.
Goal True. idtac "theorem Readers.row_major". Abort. Print Assumptions Specgrad.Readers.row_major.
Goal True. idtac "theorem Readers.scatter_along_scatter". Abort. Print Assumptions Specgrad.Readers.scatter_along_scatter.
Goal True. idtac "theorem Readers.window_adjoint". Abort. Print Assumptions Specgrad.Readers.window_adjoint.
Require Specgrad.Relation.
Goal True. idtac "theorem Relation.adjoint". Abort. Print Assumptions Specgrad.Relation.adjoint.
Require Specgrad.RoundingAlone.
Goal True. idtac "theorem RoundingAlone.alone_error". Abort. Print Assumptions Specgrad.RoundingAlone.alone_error.
Goal True. idtac "theorem RoundingAlone.alone_le". Abort. Print Assumptions Specgrad.RoundingAlone.alone_le.
Goal True. idtac "theorem RoundingAlone.alone_no_overflow". Abort. Print Assumptions Specgrad.RoundingAlone.alone_no_overflow.
Require Specgrad.RoundingBinary.
Goal True. idtac "theorem RoundingBinary.binary32_executes". Abort. Print Assumptions Specgrad.RoundingBinary.binary32_executes.
Goal True. idtac "theorem RoundingBinary.binary32_error". Abort. Print Assumptions Specgrad.RoundingBinary.binary32_error.
Require Specgrad.RoundingCheck.
Goal True. idtac "theorem RoundingCheck.operation32_evals". Abort. Print Assumptions Specgrad.RoundingCheck.operation32_evals.
Goal True. idtac "theorem RoundingCheck.directed32_evals". Abort. Print Assumptions Specgrad.RoundingCheck.directed32_evals.
Require Specgrad.RoundingConstants.
Goal True. idtac "theorem RoundingConstants.formed_then". Abort. Print Assumptions Specgrad.RoundingConstants.formed_then.
Goal True. idtac "theorem RoundingConstants.formed_product". Abort. Print Assumptions Specgrad.RoundingConstants.formed_product.
Goal True. idtac "theorem RoundingConstants.formed_quotient". Abort. Print Assumptions Specgrad.RoundingConstants.formed_quotient.
Goal True. idtac "theorem RoundingConstants.formed_sum". Abort. Print Assumptions Specgrad.RoundingConstants.formed_sum.
Goal True. idtac "theorem RoundingConstants.formed_root". Abort. Print Assumptions Specgrad.RoundingConstants.formed_root.
Goal True. idtac "theorem RoundingConstants.formed_declared". Abort. Print Assumptions Specgrad.RoundingConstants.formed_declared.
Require Specgrad.RoundingFloat32.
Goal True. idtac "theorem RoundingFloat32.growth_le_gamma". Abort. Print Assumptions Specgrad.RoundingFloat32.growth_le_gamma.
Goal True. idtac "theorem RoundingFloat32.growth_linear". Abort. Print Assumptions Specgrad.RoundingFloat32.growth_linear.
Goal True. idtac "theorem RoundingFloat32.float32_region". Abort. Print Assumptions Specgrad.RoundingFloat32.float32_region.
Goal True. idtac "theorem RoundingFloat32.certificate_region". Abort. Print Assumptions Specgrad.RoundingFloat32.certificate_region.
Goal True. idtac "theorem RoundingFloat32.certificate_no_overflow". Abort. Print Assumptions Specgrad.RoundingFloat32.certificate_no_overflow.
Goal True. idtac "theorem RoundingFloat32.float32_sum". Abort. Print Assumptions Specgrad.RoundingFloat32.float32_sum.
Goal True. idtac "theorem RoundingFloat32.float32_sum_directed". Abort. Print Assumptions Specgrad.RoundingFloat32.float32_sum_directed.
Goal True. idtac "theorem RoundingFloat32.float32_sum_kept". Abort. Print Assumptions Specgrad.RoundingFloat32.float32_sum_kept.
Require Specgrad.RoundingFormat.
Goal True. idtac "theorem RoundingFormat.operation_near". Abort. Print Assumptions Specgrad.RoundingFormat.operation_near.
Goal True. idtac "theorem RoundingFormat.operation_near_flushed". Abort. Print Assumptions Specgrad.RoundingFormat.operation_near_flushed.
Goal True. idtac "theorem RoundingFormat.formed_operation". Abort. Print Assumptions Specgrad.RoundingFormat.formed_operation.
Goal True. idtac "theorem RoundingFormat.nearest_again". Abort. Print Assumptions Specgrad.RoundingFormat.nearest_again.
Goal True. idtac "theorem RoundingFormat.directed_operation_near". Abort. Print Assumptions Specgrad.RoundingFormat.directed_operation_near.
Require Specgrad.RoundingOperators.
Goal True. idtac "theorem RoundingOperators.average_no_overflow". Abort. Print Assumptions Specgrad.RoundingOperators.average_no_overflow.
Goal True. idtac "theorem RoundingOperators.float32_average". Abort. Print Assumptions Specgrad.RoundingOperators.float32_average.
Goal True. idtac "theorem RoundingOperators.float32_average_directed". Abort. Print Assumptions Specgrad.RoundingOperators.float32_average_directed.
Goal True. idtac "theorem RoundingOperators.float32_reciprocal". Abort. Print Assumptions Specgrad.RoundingOperators.float32_reciprocal.
Goal True. idtac "theorem RoundingOperators.float32_folded_batch_norm". Abort. Print Assumptions Specgrad.RoundingOperators.float32_folded_batch_norm.
Goal True. idtac "theorem RoundingOperators.float32_add". Abort. Print Assumptions Specgrad.RoundingOperators.float32_add.
Require Specgrad.RoundingPadding.
Goal True. idtac "theorem RoundingPadding.without_computed". Abort. Print Assumptions Specgrad.RoundingPadding.without_computed.
Goal True. idtac "theorem RoundingPadding.padded_executed". Abort. Print Assumptions Specgrad.RoundingPadding.padded_executed.
Require Specgrad.RoundingRegion.
Goal True. idtac "theorem RoundingRegion.computed_le". Abort. Print Assumptions Specgrad.RoundingRegion.computed_le.
Goal True. idtac "theorem RoundingRegion.no_overflow". Abort. Print Assumptions Specgrad.RoundingRegion.no_overflow.
Goal True. idtac "theorem RoundingRegion.fused". Abort. Print Assumptions Specgrad.RoundingRegion.fused.
Goal True. idtac "theorem RoundingRegion.fused_no_overflow". Abort. Print Assumptions Specgrad.RoundingRegion.fused_no_overflow.
Require Specgrad.RoundingSums.
Goal True. idtac "theorem RoundingSums.sum_roundings". Abort. Print Assumptions Specgrad.RoundingSums.sum_roundings.
Goal True. idtac "theorem RoundingSums.plain_roundings". Abort. Print Assumptions Specgrad.RoundingSums.plain_roundings.
Goal True. idtac "theorem RoundingSums.average_roundings". Abort. Print Assumptions Specgrad.RoundingSums.average_roundings.
Goal True. idtac "theorem RoundingSums.folded_batch_norm_roundings". Abort. Print Assumptions Specgrad.RoundingSums.folded_batch_norm_roundings.
Goal True. idtac "theorem RoundingSums.batch_norm_roundings". Abort. Print Assumptions Specgrad.RoundingSums.batch_norm_roundings.
Require Specgrad.RoundingTree.
Goal True. idtac "theorem RoundingTree.any_tree". Abort. Print Assumptions Specgrad.RoundingTree.any_tree.
Require Specgrad.Sizes.
Goal True. idtac "theorem Sizes.floor_out_counts". Abort. Print Assumptions Specgrad.Sizes.floor_out_counts.
Goal True. idtac "theorem Sizes.floor_out_positive". Abort. Print Assumptions Specgrad.Sizes.floor_out_positive.
Goal True. idtac "theorem Sizes.ceil_out_counts". Abort. Print Assumptions Specgrad.Sizes.ceil_out_counts.
Goal True. idtac "theorem Sizes.ceil_out_positive". Abort. Print Assumptions Specgrad.Sizes.ceil_out_positive.
Goal True. idtac "theorem Sizes.same_out". Abort. Print Assumptions Specgrad.Sizes.same_out.
Goal True. idtac "theorem Sizes.transposed_size_out". Abort. Print Assumptions Specgrad.Sizes.transposed_size_out.
Goal True. idtac "theorem Sizes.padded_outside". Abort. Print Assumptions Specgrad.Sizes.padded_outside.
Goal True. idtac "theorem Sizes.adaptive_cell". Abort. Print Assumptions Specgrad.Sizes.adaptive_cell.
Goal True. idtac "theorem Sizes.adaptive_reads". Abort. Print Assumptions Specgrad.Sizes.adaptive_reads.
Goal True. idtac "theorem Sizes.strided_axis_refused". Abort. Print Assumptions Specgrad.Sizes.strided_axis_refused.
Goal True. idtac "theorem Sizes.same_axis_out". Abort. Print Assumptions Specgrad.Sizes.same_axis_out.
Goal True. idtac "theorem Sizes.axes_not_empty". Abort. Print Assumptions Specgrad.Sizes.axes_not_empty.
Require Specgrad.SmoothMax.
Goal True. idtac "theorem SmoothMax.smooth_max_between". Abort. Print Assumptions Specgrad.SmoothMax.smooth_max_between.
Goal True. idtac "theorem SmoothMax.softmax_sums_to_one". Abort. Print Assumptions Specgrad.SmoothMax.softmax_sums_to_one.
Goal True. idtac "theorem SmoothMax.softmax_nonnegative". Abort. Print Assumptions Specgrad.SmoothMax.softmax_nonnegative.
Goal True. idtac "theorem SmoothMax.smooth_max_pool_adjoint". Abort. Print Assumptions Specgrad.SmoothMax.smooth_max_pool_adjoint.
Goal True. idtac "theorem SmoothMax.smooth_max_pool_near_max_pool". Abort. Print Assumptions Specgrad.SmoothMax.smooth_max_pool_near_max_pool.
Require Specgrad.ToZarith.
Require Specgrad.Window.
Goal True. idtac "theorem Window.reads_inside". Abort. Print Assumptions Specgrad.Window.reads_inside.
Goal True. idtac "theorem Window.reads_all_inside". Abort. Print Assumptions Specgrad.Window.reads_all_inside.
