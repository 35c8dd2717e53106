//! Which operations may occur in a file, and the order in which their properties are encoded.
//!
//! Properties are indices of attributes in the alphabetical order of their names; an optional one (`?`) carries a flag. The
//! names tell everything else: VHLO adds a version to an operation's name whenever its attributes change.

/// An operation's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpSpec {
    /// Name with dialect, without version.
    pub name: &'static str,
    /// Names of the properties, separated by spaces.
    properties: &'static str,
}

impl OpSpec {
    /// Names of the properties in the order of their encoding, and whether each may be absent.
    pub fn properties(self) -> impl Iterator<Item = (&'static str, bool)> {
        self.properties.split_whitespace().map(|p| p.strip_suffix('?').map_or((p, false), |p| (p, true)))
    }

    /// Whether `name` is a property.
    pub fn has(self, name: &str) -> bool {
        self.properties().any(|(p, _)| p == name)
    }
}

/// The operation `name` of `dialect`.
pub(super) fn find(dialect: &str, name: &str) -> Option<OpSpec> {
    let (table, name, version) = match dialect {
        "vhlo" => {
            let (base, version) = name.rsplit_once("_v")?;
            (VHLO, base, version.parse().ok()?)
        }
        "sdy" => (SDY, name, 1),
        "builtin" => (BUILTIN, name, 1),
        _ => return None,
    };
    // The full name is the dialect, a dot, and the name.
    let is = |full: &str| full.strip_prefix(dialect).and_then(|f| f.strip_prefix('.')) == Some(name);
    let row = table.iter().find(|(n, v, _)| *v == version && is(n))?;
    Some(OpSpec { name: row.0, properties: row.2 })
}

/// Name, version, properties.
type Row = (&'static str, u32, &'static str);

const BUILTIN: &[Row] =
    &[("builtin.module", 1, "sym_name? sym_visibility?"), ("builtin.unrealized_conversion_cast", 1, "")];

const SDY: &[Row] = &[
    ("sdy.all_gather", 1, "gathering_axes out_sharding"),
    ("sdy.all_reduce", 1, "out_sharding reduction_axes reduction_op?"),
    ("sdy.all_slice", 1, "out_sharding slicing_axes"),
    ("sdy.all_to_all", 1, "out_sharding params"),
    ("sdy.collective_permute", 1, "out_sharding"),
    ("sdy.constant", 1, "value"),
    ("sdy.data_flow_edge", 1, "sharding?"),
    ("sdy.manual_computation", 1, "in_shardings manual_axes out_shardings"),
    ("sdy.mesh", 1, "mesh sym_name"),
    ("sdy.named_computation", 1, "in_shardings? name out_shardings?"),
    ("sdy.propagation_barrier", 1, "allowed_direction"),
    ("sdy.reduce_scatter", 1, "out_sharding reduce_scatter_axes reduction_op?"),
    ("sdy.reshard", 1, "sharding"),
    ("sdy.return", 1, ""),
    ("sdy.sharding_constraint", 1, "sharding"),
    ("sdy.sharding_group", 1, "group_id"),
];

#[rustfmt::skip]
const VHLO: &[Row] = &[
    ("vhlo.abs", 1, ""),
    ("vhlo.add", 1, ""),
    ("vhlo.after_all", 1, ""),
    ("vhlo.all_gather", 1, "all_gather_dim channel_id replica_groups use_global_device_ids"),
    ("vhlo.all_gather", 2, "all_gather_dim channel_id replica_groups use_global_device_ids"),
    ("vhlo.all_reduce", 1, "channel_id replica_groups use_global_device_ids"),
    ("vhlo.all_reduce", 2, "channel_id replica_groups use_global_device_ids"),
    ("vhlo.all_to_all", 1, "channel_id concat_dimension replica_groups split_count split_dimension"),
    ("vhlo.all_to_all", 2, "channel_id concat_dimension replica_groups split_count split_dimension"),
    ("vhlo.and", 1, ""),
    ("vhlo.async_done", 1, ""),
    ("vhlo.async_start", 1, ""),
    ("vhlo.atan2", 1, ""),
    ("vhlo.batch_norm_grad", 1, "epsilon feature_index"),
    ("vhlo.batch_norm_inference", 1, "epsilon feature_index"),
    ("vhlo.batch_norm_training", 1, "epsilon feature_index"),
    ("vhlo.bitcast_convert", 1, ""),
    ("vhlo.broadcast", 1, "broadcast_sizes"),
    ("vhlo.broadcast_in_dim", 1, "broadcast_dimensions"),
    ("vhlo.call", 1, "callee"),
    ("vhlo.case", 1, ""),
    ("vhlo.cbrt", 1, ""),
    ("vhlo.cbrt", 2, "result_accuracy"),
    ("vhlo.ceil", 1, ""),
    ("vhlo.cholesky", 1, "lower"),
    ("vhlo.clamp", 1, ""),
    ("vhlo.collective_broadcast", 1, "channel_id replica_groups"),
    ("vhlo.collective_broadcast", 2, "channel_id has_dynamic_root replica_groups"),
    ("vhlo.collective_permute", 1, "channel_id source_target_pairs"),
    ("vhlo.collective_reduce", 1, "channel_id has_dynamic_root replica_groups use_global_device_ids"),
    ("vhlo.compare", 1, "compare_type comparison_direction"),
    ("vhlo.complex", 1, ""),
    ("vhlo.composite", 1, "composite_attributes decomposition name version"),
    ("vhlo.composite", 2, "composite_attributes decomposition name version"),
    ("vhlo.concatenate", 1, "dimension"),
    ("vhlo.constant", 1, "value"),
    ("vhlo.convert", 1, ""),
    ("vhlo.convolution", 1,
        "batch_group_count feature_group_count input_batch_dimension input_feature_dimension \
         input_spatial_dimensions kernel_input_feature_dimension kernel_output_feature_dimension \
         kernel_spatial_dimensions lhs_dilation output_batch_dimension output_feature_dimension \
         output_spatial_dimensions padding precision_config rhs_dilation window_reversal window_strides"),
    ("vhlo.cosine", 1, ""),
    ("vhlo.cosine", 2, "result_accuracy"),
    ("vhlo.count_leading_zeros", 1, ""),
    ("vhlo.create_token", 1, ""),
    ("vhlo.cross-replica-sum", 1, "replica_groups"),
    ("vhlo.custom_call", 1,
        "api_version backend_config call_target_name called_computations has_side_effect operand_layouts \
         output_operand_aliases result_layouts"),
    ("vhlo.custom_call", 2,
        "api_version backend_config call_target_name called_computations has_side_effect operand_layouts \
         output_operand_aliases result_layouts result_tilings"),
    ("vhlo.divide", 1, ""),
    ("vhlo.dot", 1, "precision_config"),
    ("vhlo.dot_general", 1,
        "lhs_batching_dimensions lhs_contracting_dimensions precision_config rhs_batching_dimensions \
         rhs_contracting_dimensions"),
    ("vhlo.dot_general", 2,
        "accumulation_type allow_imprecise_accumulation lhs_batching_dimensions lhs_component_count \
         lhs_contracting_dimensions lhs_precision_type num_primitive_operations precision_config \
         rhs_batching_dimensions rhs_component_count rhs_contracting_dimensions rhs_precision_type"),
    ("vhlo.dynamic_broadcast_in_dim", 1,
        "broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions"),
    ("vhlo.dynamic_conv", 1,
        "batch_group_count feature_group_count input_batch_dimension input_feature_dimension \
         input_spatial_dimensions kernel_input_feature_dimension kernel_output_feature_dimension \
         kernel_spatial_dimensions lhs_dilation output_batch_dimension output_feature_dimension \
         output_spatial_dimensions padding precision_config rhs_dilation window_reversal window_strides"),
    ("vhlo.dynamic_conv", 2,
        "batch_group_count feature_group_count input_batch_dimension input_feature_dimension \
         input_spatial_dimensions kernel_input_feature_dimension kernel_output_feature_dimension \
         kernel_spatial_dimensions lhs_dilation output_batch_dimension output_feature_dimension \
         output_spatial_dimensions precision_config rhs_dilation window_reversal window_strides"),
    ("vhlo.dynamic_gather", 1, "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims start_index_map"),
    ("vhlo.dynamic_gather", 2,
        "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims \
         start_index_map start_indices_batching_dims"),
    ("vhlo.dynamic_iota", 1, "iota_dimension"),
    ("vhlo.dynamic_pad", 1, ""),
    ("vhlo.dynamic_reshape", 1, ""),
    ("vhlo.dynamic_slice", 1, "slice_sizes"),
    ("vhlo.dynamic_update_slice", 1, ""),
    ("vhlo.einsum", 1, "einsum_config"),
    ("vhlo.exponential", 1, ""),
    ("vhlo.exponential", 2, "result_accuracy"),
    ("vhlo.exponential_minus_one", 1, ""),
    ("vhlo.exponential_minus_one", 2, "result_accuracy"),
    ("vhlo.fft", 1, "fft_length fft_type"),
    ("vhlo.floor", 1, ""),
    ("vhlo.func", 1, "arg_attrs function_type res_attrs sym_name sym_visibility"),
    ("vhlo.gather", 1,
        "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims slice_sizes start_index_map"),
    ("vhlo.gather", 2,
        "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims slice_sizes \
         start_index_map start_indices_batching_dims"),
    ("vhlo.get_dimension_size", 1, "dimension"),
    ("vhlo.get_tuple_element", 1, "index"),
    ("vhlo.if", 1, ""),
    ("vhlo.imag", 1, ""),
    ("vhlo.infeed", 1, "infeed_config layout"),
    ("vhlo.iota", 1, "iota_dimension"),
    ("vhlo.is_finite", 1, ""),
    ("vhlo.log", 1, ""),
    ("vhlo.log", 2, "result_accuracy"),
    ("vhlo.log_plus_one", 1, ""),
    ("vhlo.log_plus_one", 2, "result_accuracy"),
    ("vhlo.logistic", 1, ""),
    ("vhlo.logistic", 2, "result_accuracy"),
    ("vhlo.map", 1, "dimensions"),
    ("vhlo.maximum", 1, ""),
    ("vhlo.minimum", 1, ""),
    ("vhlo.multiply", 1, ""),
    ("vhlo.negate", 1, ""),
    ("vhlo.not", 1, ""),
    ("vhlo.optimization_barrier", 1, ""),
    ("vhlo.or", 1, ""),
    ("vhlo.outfeed", 1, "outfeed_config"),
    ("vhlo.pad", 1, "edge_padding_high edge_padding_low interior_padding"),
    ("vhlo.partition_id", 1, ""),
    ("vhlo.popcnt", 1, ""),
    ("vhlo.power", 1, ""),
    ("vhlo.real", 1, ""),
    ("vhlo.real_dynamic_slice", 1, ""),
    ("vhlo.recv", 1, "channel_id channel_type is_host_transfer"),
    ("vhlo.recv", 2, "channel_id channel_type is_host_transfer source_target_pairs"),
    ("vhlo.reduce", 1, "dimensions"),
    ("vhlo.reduce_precision", 1, "exponent_bits mantissa_bits"),
    ("vhlo.reduce_scatter", 1, "channel_id replica_groups scatter_dimension use_global_device_ids"),
    ("vhlo.reduce_window", 1, "base_dilations padding window_dilations window_dimensions window_strides"),
    ("vhlo.remainder", 1, ""),
    ("vhlo.replica_id", 1, ""),
    ("vhlo.reshape", 1, ""),
    ("vhlo.return", 1, ""),
    ("vhlo.reverse", 1, "dimensions"),
    ("vhlo.rng", 1, "rng_distribution"),
    ("vhlo.rng_bit_generator", 1, "rng_algorithm"),
    ("vhlo.round_nearest_afz", 1, ""),
    ("vhlo.round_nearest_even", 1, ""),
    ("vhlo.rsqrt", 1, ""),
    ("vhlo.rsqrt", 2, "result_accuracy"),
    ("vhlo.scatter", 1,
        "index_vector_dim indices_are_sorted inserted_window_dims scatter_dims_to_operand_dims unique_indices \
         update_window_dims"),
    ("vhlo.scatter", 2,
        "index_vector_dim indices_are_sorted input_batching_dims inserted_window_dims \
         scatter_dims_to_operand_dims scatter_indices_batching_dims unique_indices update_window_dims"),
    ("vhlo.select", 1, ""),
    ("vhlo.select_and_scatter", 1, "padding window_dimensions window_strides"),
    ("vhlo.send", 1, "channel_id channel_type is_host_transfer"),
    ("vhlo.send", 2, "channel_id channel_type is_host_transfer source_target_pairs"),
    ("vhlo.set_dimension_size", 1, "dimension"),
    ("vhlo.shift_left", 1, ""),
    ("vhlo.shift_right_arithmetic", 1, ""),
    ("vhlo.shift_right_logical", 1, ""),
    ("vhlo.sign", 1, ""),
    ("vhlo.sine", 1, ""),
    ("vhlo.sine", 2, "result_accuracy"),
    ("vhlo.slice", 1, "limit_indices start_indices strides"),
    ("vhlo.sort", 1, "dimension is_stable"),
    ("vhlo.sqrt", 1, ""),
    ("vhlo.sqrt", 2, "result_accuracy"),
    ("vhlo.subtract", 1, ""),
    ("vhlo.tan", 1, ""),
    ("vhlo.tan", 2, "result_accuracy"),
    ("vhlo.tanh", 1, ""),
    ("vhlo.tanh", 2, "result_accuracy"),
    ("vhlo.torch_index_select", 1, "batch_dims dim"),
    ("vhlo.transpose", 1, "permutation"),
    ("vhlo.triangular_solve", 1, "left_side lower transpose_a unit_diagonal"),
    ("vhlo.tuple", 1, ""),
    ("vhlo.unary_einsum", 1, "einsum_config"),
    ("vhlo.uniform_dequantize", 1, ""),
    ("vhlo.uniform_quantize", 1, ""),
    ("vhlo.while", 1, ""),
    ("vhlo.xor", 1, ""),
];

/// Full names with versions of all VHLO operations.
#[cfg(test)]
pub(super) fn vhlo_names() -> impl Iterator<Item = String> {
    VHLO.iter().map(|(name, version, _)| format!("{name}_v{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions() {
        assert_eq!(find("vhlo", "add_v1").map(|o| o.name), Some("vhlo.add"));
        assert_eq!(find("vhlo", "cross-replica-sum_v1").map(|o| o.name), Some("vhlo.cross-replica-sum"));
        assert_eq!(find("vhlo", "add_v2"), None);
        assert_eq!(find("vhlo", "add"), None);
        assert_eq!(find("sdy", "add_v1"), None);
        let gather = find("vhlo", "gather_v1").map(|o| o.properties().collect::<Vec<_>>());
        assert_eq!(gather.map(|g| g.len()), Some(6));
    }

    #[test]
    fn properties_are_in_alphabetical_order() {
        for (name, _, properties) in VHLO.iter().chain(SDY).chain(BUILTIN) {
            let p: Vec<_> = properties.split_whitespace().collect();
            assert!(p.is_sorted(), "{name}");
        }
    }
}
