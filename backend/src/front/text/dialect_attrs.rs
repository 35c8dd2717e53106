//! Attributes of StableHLO, CHLO and others.

use super::lexer::Kind;
use super::parser::{Parsed, Parser};
use crate::hlo::{Attr, ConvDims, DotAlgorithm, DotDims, GatherDims, OutputAlias, ReplicaGroups, ScatterDims, Type};

/// Enum attributes of StableHLO and CHLO.
const ENUMS: &[&str] = &[
    "comparison_direction",
    "comparison_type",
    "custom_call_api_version",
    "fft_type",
    "precision",
    "result_accuracy_mode",
    "rng_algorithm",
    "rng_distribution",
    "transpose",
];

/// Structures of StableHLO.
const STRUCTURES: &[&str] = &[
    "channel_handle",
    "conv",
    "dot",
    "dot_algorithm",
    "gather",
    "output_operand_alias",
    "ragged_dot",
    "replica_group_mesh_axes",
    "result_accuracy",
    "scatter",
];

/// Fields of a structure: name and integers. A single integer is a list of one.
type Fields<'a> = Vec<(&'a str, Vec<i64>)>;

impl<'a> Parser<'a> {
    /// The attribute `name`, whose `#name` began at byte `start`; the current token is what follows.
    pub(super) fn dialect_attr(&mut self, name: &'a str, start: usize) -> Parsed<Attr> {
        let dialect = name.split('.').next().unwrap_or(name);
        if !matches!(dialect, "stablehlo" | "chlo" | "mhlo" | "vhlo") {
            return self.opaque_attr(name, start);
        }
        if let Some((_, kind)) = name.split_once('.') {
            return self.hlo_attr(name, kind, start);
        }
        // `#stablehlo<precision HIGH>`, and the short forms of structures.
        self.expect(b'<')?;
        let kind = self.word("the name of an attribute")?;
        if ENUMS.contains(&kind) {
            let wrapped = self.eat(b'<');
            let value = self.word("a value of the enum")?;
            if wrapped {
                self.expect(b'>')?;
            }
            self.expect(b'>')?;
            return Ok(Attr::Enum(value.to_owned()));
        }
        if !STRUCTURES.contains(&kind) {
            let message = format!("attribute `#{name}<{kind}>` is not supported");
            return Err(self.error(self.since(start), message));
        }
        let attr = self.hlo_attr(name, kind, start)?;
        self.expect(b'>')?;
        Ok(attr)
    }

    fn hlo_attr(&mut self, name: &'a str, kind: &'a str, start: usize) -> Parsed<Attr> {
        if ENUMS.contains(&kind) {
            self.expect(b'<')?;
            let value = self.word("a value of the enum")?;
            self.expect(b'>')?;
            return Ok(Attr::Enum(value.to_owned()));
        }
        match kind {
            "dot" => Ok(Attr::Dot(self.dot_dims()?)),
            "dot_algorithm" => Ok(Attr::DotAlgorithm(Box::new(self.dot_algorithm()?))),
            "conv" => {
                self.expect(b'<')?;
                let dims = if self.eat_word("raw") {
                    self.conv_raw()?
                } else {
                    let dims = self.conv_dims()?;
                    self.expect(b'>')?;
                    dims
                };
                Ok(Attr::Conv(Box::new(dims)))
            }
            "gather" => Ok(Attr::Gather(Box::new(self.gather_dims()?))),
            "scatter" => Ok(Attr::Scatter(Box::new(self.scatter_dims()?))),
            "channel_handle" => {
                let mut f = self.fields(&["handle", "type"])?;
                Ok(Attr::Channel { handle: one(&mut f, "handle"), kind: one(&mut f, "type") })
            }
            "output_operand_alias" => {
                let mut f = self.fields(&["output_tuple_indices", "operand_index", "operand_tuple_indices"])?;
                Ok(Attr::Alias(OutputAlias {
                    output_tuple_indices: many(&mut f, "output_tuple_indices"),
                    operand_index: one(&mut f, "operand_index"),
                    operand_tuple_indices: many(&mut f, "operand_tuple_indices"),
                }))
            }
            "replica_group_mesh_axes" => {
                self.expect(b'<')?;
                self.expect_field("mesh")?;
                let mesh = self.attr()?;
                self.expect(b',')?;
                self.expect_field("axes")?;
                let axes = self.list(b'[', b']', Self::attr)?;
                self.expect(b'>')?;
                Ok(Attr::Groups(ReplicaGroups::MeshAxes(Box::new(mesh), axes)))
            }
            "result_accuracy" => self.result_accuracy(),
            "ragged_dot" => self.ragged_dot(),
            _ => self.opaque_attr(name, start),
        }
    }

    /// Skips a balanced `<...>` and keeps its canonical text.
    pub(super) fn opaque_attr(&mut self, name: &str, start: usize) -> Parsed<Attr> {
        if !self.at(b'<') {
            return Ok(Attr::Opaque(name.to_owned()));
        }
        let body = self.balanced(start)?;
        Ok(Attr::Opaque(format!("{name}{body}")))
    }

    /// A balanced group at the current token as canonical text: white space only as MLIR prints it.
    pub(super) fn balanced(&mut self, start: usize) -> Parsed<String> {
        let sdy =
            self.slice(start..self.tok.start).contains("sdy") || !self.slice(start..self.tok.start).starts_with('#');
        let rule = self.slice(start..self.tok.start).contains("op_sharding_rule");
        let mut out = String::new();
        let mut open: Vec<u8> = Vec::new();
        let mut last = Kind::Eof;
        loop {
            let (kind, text) = (self.tok.kind, self.text());
            match kind {
                Kind::Punct(p @ (b'<' | b'(' | b'[' | b'{')) => open.push(p),
                Kind::Punct(p @ (b'>' | b')' | b']' | b'}')) => {
                    let matching = match p {
                        b'>' => b'<',
                        b')' => b'(',
                        b']' => b'[',
                        _ => b'{',
                    };
                    if open.pop() != Some(matching) {
                        return self.expected("the other end of a bracket");
                    }
                }
                Kind::Eof | Kind::Bad | Kind::Metadata => return self.expected("the end of the attribute"),
                _ => {}
            }
            let wordy = |k| {
                matches!(k, Kind::Word | Kind::Int | Kind::Float | Kind::Str | Kind::Percent | Kind::At | Kind::Hash)
            };
            let equals = !sdy && (kind == Kind::Punct(b'=') || last == Kind::Punct(b'='));
            let rule_gap = rule
                && (last == Kind::Punct(b')') && kind == Kind::Punct(b'{')
                    || last == Kind::Punct(b'}') && kind == Kind::Word);
            if last == Kind::Punct(b',') || equals || (wordy(last) && wordy(kind)) || rule_gap {
                out.push(' ');
            }
            out.push_str(text);
            last = kind;
            self.bump();
            if open.is_empty() {
                return Ok(out);
            }
        }
    }

    /// `<name = 1, other = [1, 2]>` with fields of `names` in any order, each at most once.
    fn fields(&mut self, names: &[&'static str]) -> Parsed<Fields<'a>> {
        self.expect(b'<')?;
        self.fields_open(names)
    }

    fn fields_open(&mut self, names: &[&'static str]) -> Parsed<Fields<'a>> {
        let mut fields: Fields<'a> = Vec::new();
        while !self.eat(b'>') {
            let span = self.span();
            let name = self.word("the name of a field")?;
            if !names.contains(&name) {
                let help = format!("the fields are {}", names.join(", "));
                return Err(self.error_help(span, format!("there is no field `{name}`"), help));
            }
            if fields.iter().any(|(n, _)| *n == name) {
                return Err(self.error(span, format!("field `{name}` is given twice")));
            }
            self.expect(b'=')?;
            let value = if self.at(b'[') { self.ints()? } else { vec![self.int()?] };
            fields.push((name, value));
            if !self.eat(b',') && !self.at(b'>') {
                return self.expected("`,` or `>`");
            }
        }
        Ok(fields)
    }

    fn dot_dims(&mut self) -> Parsed<DotDims> {
        let mut f = self.fields(&[
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
        ])?;
        Ok(DotDims {
            lhs_batch: many(&mut f, "lhs_batching_dimensions"),
            rhs_batch: many(&mut f, "rhs_batching_dimensions"),
            lhs_contract: many(&mut f, "lhs_contracting_dimensions"),
            rhs_contract: many(&mut f, "rhs_contracting_dimensions"),
        })
    }

    /// Kept as text, with the fields in their order and without the empty ones.
    fn ragged_dot(&mut self) -> Parsed<Attr> {
        const NAMES: &[&str] = &[
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
            "lhs_ragged_dimensions",
            "rhs_group_dimensions",
        ];
        let mut f = self.fields(NAMES)?;
        let lists = NAMES.iter().map(|n| (n, many(&mut f, n))).filter(|(_, v)| !v.is_empty());
        let text: Vec<String> = lists.map(|(n, v)| format!("{n} = {v:?}")).collect();
        Ok(Attr::Opaque(format!("chlo.ragged_dot<{}>", text.join(", "))))
    }

    fn gather_dims(&mut self) -> Parsed<GatherDims> {
        let mut f = self.fields(&[
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
            "start_index_map",
            "index_vector_dim",
        ])?;
        Ok(GatherDims {
            offset_dims: many(&mut f, "offset_dims"),
            collapsed_slice_dims: many(&mut f, "collapsed_slice_dims"),
            operand_batching_dims: many(&mut f, "operand_batching_dims"),
            start_indices_batching_dims: many(&mut f, "start_indices_batching_dims"),
            start_index_map: many(&mut f, "start_index_map"),
            index_vector_dim: one(&mut f, "index_vector_dim"),
        })
    }

    fn scatter_dims(&mut self) -> Parsed<ScatterDims> {
        let mut f = self.fields(&[
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
            "scatter_dims_to_operand_dims",
            "index_vector_dim",
        ])?;
        Ok(ScatterDims {
            update_window_dims: many(&mut f, "update_window_dims"),
            inserted_window_dims: many(&mut f, "inserted_window_dims"),
            input_batching_dims: many(&mut f, "input_batching_dims"),
            scatter_indices_batching_dims: many(&mut f, "scatter_indices_batching_dims"),
            scatter_dims_to_operand_dims: many(&mut f, "scatter_dims_to_operand_dims"),
            index_vector_dim: one(&mut f, "index_vector_dim"),
        })
    }

    fn conv_raw(&mut self) -> Parsed<ConvDims> {
        let mut f = self.fields_open(&[
            "input_batch_dimension",
            "input_feature_dimension",
            "input_spatial_dimensions",
            "kernel_input_feature_dimension",
            "kernel_output_feature_dimension",
            "kernel_spatial_dimensions",
            "output_batch_dimension",
            "output_feature_dimension",
            "output_spatial_dimensions",
        ])?;
        Ok(ConvDims {
            input_batch: one(&mut f, "input_batch_dimension"),
            input_feature: one(&mut f, "input_feature_dimension"),
            input_spatial: many(&mut f, "input_spatial_dimensions"),
            kernel_input_feature: one(&mut f, "kernel_input_feature_dimension"),
            kernel_output_feature: one(&mut f, "kernel_output_feature_dimension"),
            kernel_spatial: many(&mut f, "kernel_spatial_dimensions"),
            output_batch: one(&mut f, "output_batch_dimension"),
            output_feature: one(&mut f, "output_feature_dimension"),
            output_spatial: many(&mut f, "output_spatial_dimensions"),
        })
    }

    /// `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`.
    pub(super) fn conv_dims(&mut self) -> Parsed<ConvDims> {
        let (input_batch, input_feature, input_spatial) = self.conv_side("b", "f")?;
        self.expect_word("x")?;
        let (kernel_input_feature, kernel_output_feature, kernel_spatial) = self.conv_side("i", "o")?;
        self.expect_arrow()?;
        let (output_batch, output_feature, output_spatial) = self.conv_side("b", "f")?;
        Ok(ConvDims {
            input_batch,
            input_feature,
            input_spatial,
            kernel_input_feature,
            kernel_output_feature,
            kernel_spatial,
            output_batch,
            output_feature,
            output_spatial,
        })
    }

    /// One bracket: where the dimensions called `first` and `second` are, and where spatial dimensions 0, 1, ... are.
    fn conv_side(&mut self, first: &str, second: &str) -> Parsed<(i64, i64, Vec<i64>)> {
        let start = self.tok.start;
        let mut named = [None, None];
        let mut spatial: Vec<(i64, i64)> = Vec::new();
        let mut index = 0;
        self.list(b'[', b']', |p| {
            if p.tok.kind == Kind::Word {
                let span = p.span();
                let word = p.word("a dimension")?;
                let slot = [first, second].iter().position(|n| *n == word);
                match slot {
                    Some(s) if named[s].is_none() => named[s] = Some(index),
                    _ => {
                        return Err(
                            p.error(span, format!("expected `{first}`, `{second}` or a spatial dimension, once each"))
                        );
                    }
                }
            } else {
                spatial.push((p.int()?, index));
            }
            index += 1;
            Ok(())
        })?;
        spatial.sort_unstable();
        let in_order = spatial.iter().enumerate().all(|(i, &(d, _))| d == i as i64);
        match (named, in_order) {
            ([Some(a), Some(b)], true) => Ok((a, b, spatial.into_iter().map(|(_, at)| at).collect())),
            _ => {
                let message = format!("expected `{first}`, `{second}` and the spatial dimensions from 0 on, once each");
                Err(self.error(self.since(start), message))
            }
        }
    }

    /// The body of `#stablehlo.dot_algorithm`.
    pub(super) fn dot_algorithm(&mut self) -> Parsed<DotAlgorithm> {
        self.expect(b'<')?;
        let lhs_precision = self.algorithm_type("lhs_precision_type")?;
        let rhs_precision = self.algorithm_type("rhs_precision_type")?;
        let accumulation = self.algorithm_type("accumulation_type")?;
        let mut count = |name| {
            self.expect_field(name)?;
            let n = self.int()?;
            self.expect(b',')?;
            Ok(n)
        };
        let lhs_components = count("lhs_component_count")?;
        let rhs_components = count("rhs_component_count")?;
        let primitive_operations = count("num_primitive_operations")?;
        self.expect_field("allow_imprecise_accumulation")?;
        let imprecise_accumulation = self.boolean()?;
        self.expect(b'>')?;
        Ok(DotAlgorithm {
            lhs_precision,
            rhs_precision,
            accumulation,
            lhs_components,
            rhs_components,
            primitive_operations,
            imprecise_accumulation,
        })
    }

    fn algorithm_type(&mut self, name: &str) -> Parsed<Type> {
        self.expect_field(name)?;
        let t = self.ty()?;
        self.expect(b',')?;
        Ok(t)
    }

    pub(super) fn boolean(&mut self) -> Parsed<bool> {
        if self.eat_word("true") {
            Ok(true)
        } else if self.eat_word("false") {
            Ok(false)
        } else {
            self.expected("`true` or `false`")
        }
    }

    /// `<atol = 1e-5, rtol = 0.0, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>`, kept as text without the
    /// fields that are zero.
    fn result_accuracy(&mut self) -> Parsed<Attr> {
        self.expect(b'<')?;
        let mut text = String::from("stablehlo.result_accuracy<");
        for name in ["atol", "rtol"] {
            if self.eat_word(name) {
                self.expect(b'=')?;
                let v = self.float()?;
                self.expect(b',')?;
                if v != 0.0 {
                    text.push_str(&format!("{name} = {v:e}, "));
                }
            }
        }
        if self.eat_word("ulps") {
            self.expect(b'=')?;
            let n = self.int()?;
            self.expect(b',')?;
            if n != 0 {
                text.push_str(&format!("ulps = {n}, "));
            }
        }
        self.expect_field("mode")?;
        let span = self.span();
        let Attr::Enum(mode) = self.attr()? else {
            return Err(self.error(span, "expected a result accuracy mode"));
        };
        self.expect(b'>')?;
        text.push_str(&format!("mode = #stablehlo.result_accuracy_mode<{mode}>>"));
        Ok(Attr::Opaque(text))
    }
}

fn many(fields: &mut Fields<'_>, name: &str) -> Vec<i64> {
    match fields.iter().position(|(n, _)| *n == name) {
        Some(i) => fields.swap_remove(i).1,
        None => Vec::new(),
    }
}

fn one(fields: &mut Fields<'_>, name: &str) -> i64 {
    many(fields, name).first().copied().unwrap_or(0)
}
