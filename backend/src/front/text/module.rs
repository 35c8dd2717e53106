//! Modules, functions, meshes.

use super::lexer::Kind;
use super::ops::BlockArg;
use super::parser::{Failed, MAX_DIAGS, Names, Parsed, Parser};
use crate::hlo::{Attr, AttrList, Func, FuncType, LocTable, Module, Param, ResultInfo, Type};

impl<'a> Parser<'a> {
    /// A whole file: aliases and one module, with or without `module` around it.
    pub(super) fn file(&mut self) -> Parsed<Module> {
        self.collect_aliases()?;
        let mut module = Module::default();
        let mut explicit = false;
        loop {
            match (self.tok.kind, self.text()) {
                (Kind::Eof, _) => break,
                (Kind::Hash | Kind::Bang, _) => self.skip_alias()?,
                (Kind::Metadata, _) => self.skip_metadata()?,
                (Kind::Word, "module" | "builtin.module") if !explicit && module.funcs.is_empty() => {
                    explicit = true;
                    self.bump();
                    self.module(&mut module)?;
                }
                (Kind::Str, "\"builtin.module\"") if !explicit && module.funcs.is_empty() => {
                    explicit = true;
                    self.bump();
                    self.generic_module(&mut module)?;
                }
                _ if explicit => return self.expected("the end of the file: a file holds one module"),
                _ => self.symbol_op(&mut module)?,
            }
        }
        if module.funcs.is_empty() && self.diags.is_empty() {
            return Err(self.error(0..0, "the program has no function"));
        }
        module.locs = std::mem::take(&mut self.locs);
        Ok(module)
    }

    /// Resources of a file, `{-# ... #-}`: nothing can refer to them, as `dense_resource` is an error.
    fn skip_metadata(&mut self) -> Parsed<()> {
        let start = self.tok.start;
        match self.slice(start..self.src.len()).find("#-}") {
            Some(i) => {
                self.reset(start + i + 3);
                Ok(())
            }
            None => self.expected("`#-}` somewhere behind"),
        }
    }

    /// `@name attributes {...} { ... }`.
    fn module(&mut self, module: &mut Module) -> Parsed<()> {
        if self.tok.kind == Kind::At {
            module.name = self.symbol()?;
        }
        if self.eat_word("attributes") {
            module.attrs = self.attr_dict()?;
        }
        self.expect(b'{')?;
        self.module_body(module)?;
        self.expect(b'}')?;
        self.trailing_loc()?;
        Ok(())
    }

    /// `() <{...}> ({ ... }) {...} : () -> ()`.
    fn generic_module(&mut self, module: &mut Module) -> Parsed<()> {
        self.expect(b'(')?;
        self.expect(b')')?;
        let mut head = self.generic_properties()?;
        self.expect(b'(')?;
        self.expect(b'{')?;
        if self.tok.kind == Kind::Caret {
            self.bump();
            self.expect(b':')?;
        }
        self.module_body(module)?;
        self.expect(b'}')?;
        self.expect(b')')?;
        self.generic_attrs(&mut head)?;
        self.trailing_loc()?;
        if let Some(Attr::Str(name)) = head.remove("sym_name") {
            module.name = name;
        }
        module.attrs = head;
        Ok(())
    }

    fn generic_properties(&mut self) -> Parsed<AttrList> {
        let mut attrs = AttrList::default();
        if self.eat(b'<') {
            attrs = self.attr_dict()?;
            self.expect(b'>')?;
        }
        Ok(attrs)
    }

    /// Attributes, type and location at the end of a generic op.
    fn generic_attrs(&mut self, attrs: &mut AttrList) -> Parsed<()> {
        if self.at(b'{') {
            let start = self.tok.start;
            let mut all = self.list(b'{', b'}', Self::named_attr)?;
            all.extend(attrs.iter().map(|(n, a)| (n.to_owned(), a.clone())));
            *attrs = self.attr_list(all, start)?;
        }
        self.expect(b':')?;
        self.func_type()?;
        Ok(())
    }

    fn module_body(&mut self, module: &mut Module) -> Parsed<()> {
        while !self.at(b'}') {
            if self.tok.kind == Kind::Eof {
                return self.expected("`}`");
            }
            let start = self.tok.start;
            if self.symbol_op(module).is_err() {
                if self.diags.len() >= MAX_DIAGS {
                    return Err(Failed);
                }
                self.skip_op(start);
            }
        }
        Ok(())
    }

    /// A function or a mesh.
    fn symbol_op(&mut self, module: &mut Module) -> Parsed<()> {
        let span = self.span();
        match (self.tok.kind, self.text()) {
            (Kind::Word, "func.func") => {
                self.bump();
                let func = self.func()?;
                module.funcs.push(func);
                Ok(())
            }
            (Kind::Str, "\"func.func\"") => {
                self.bump();
                let func = self.generic_func()?;
                module.funcs.push(func);
                Ok(())
            }
            (Kind::Word, "sdy.mesh") => self.mesh(module),
            (Kind::Str, "\"sdy.mesh\"") => self.generic_mesh(module),
            (Kind::Word | Kind::Str, name) => {
                let message = format!("operation `{}` is not supported here", name.trim_matches('"'));
                Err(self.error_help(span, message, "a module holds `func.func` and `sdy.mesh`"))
            }
            _ => self.expected("a function"),
        }
    }

    /// `@mesh = <["x"=4]> {...}`. The attributes repeat the mesh and are dropped.
    fn mesh(&mut self, module: &mut Module) -> Parsed<()> {
        self.bump();
        let span = self.span();
        let name = self.symbol()?;
        self.expect(b'=')?;
        let mesh = match self.tok.kind {
            Kind::Punct(b'<') => Attr::Opaque(format!("sdy.mesh{}", self.balanced(self.tok.start)?)),
            _ => self.attr()?,
        };
        if self.at(b'{') {
            self.attr_dict()?;
        }
        self.trailing_loc()?;
        self.add_mesh(module, name, mesh, span)
    }

    fn generic_mesh(&mut self, module: &mut Module) -> Parsed<()> {
        let span = self.span();
        self.bump();
        self.expect(b'(')?;
        self.expect(b')')?;
        let mut head = self.generic_properties()?;
        self.generic_attrs(&mut head)?;
        self.trailing_loc()?;
        match (head.remove("sym_name"), head.remove("mesh")) {
            (Some(Attr::Str(name)), Some(mesh)) => self.add_mesh(module, name, mesh, span),
            _ => Err(self.error(span, "`sdy.mesh` needs `sym_name` and `mesh`")),
        }
    }

    fn add_mesh(&mut self, module: &mut Module, name: String, mesh: Attr, span: std::ops::Range<usize>) -> Parsed<()> {
        self.define_symbol(&name, span)?;
        module.meshes.push((name, mesh));
        Ok(())
    }

    /// `private @name(%a: type {...} loc(...), ...) -> (type {...}, ...) attributes {...} { ... }`.
    fn func(&mut self) -> Parsed<Func> {
        let public = !(self.eat_word("private") || self.eat_word("nested"));
        self.eat_word("public");
        let name_span = self.span();
        let name = self.symbol()?;
        self.define_symbol(&name, name_span.clone())?;
        let mut param_attrs = Vec::new();
        let args = self.list(b'(', b')', |p| {
            if p.tok.kind != Kind::Percent {
                return p.expected("a parameter such as `%arg0: tensor<f32>` (functions need a body)");
            }
            let (name, span) = (&p.text()[1..], p.span());
            p.bump();
            p.expect(b':')?;
            let ty = p.ty()?;
            param_attrs.push(if p.at(b'{') { p.attr_dict()? } else { AttrList::default() });
            Ok((name, span, ty, p.trailing_loc()?))
        })?;
        let mut results = Vec::new();
        if self.tok.kind == Kind::Arrow {
            self.bump();
            results = if self.at(b'(') {
                self.list(b'(', b')', |p| {
                    let ty = p.ty()?;
                    Ok(ResultInfo { ty, attrs: if p.at(b'{') { p.attr_dict()? } else { AttrList::default() } })
                })?
            } else {
                vec![ResultInfo { ty: self.ty()?, attrs: AttrList::default() }]
            };
        }
        let attrs = if self.eat_word("attributes") { self.attr_dict()? } else { AttrList::default() };
        if !self.at(b'{') {
            let message = format!("function `@{name}` has no body");
            return Err(self.error(name_span, message));
        }
        self.expect(b'{')?;
        let mut func = self.func_body(args, &param_attrs, results)?;
        func.name = name;
        func.public = public;
        func.attrs = attrs;
        func.loc = self.trailing_loc()?.unwrap_or(LocTable::UNKNOWN);
        Ok(func)
    }

    fn define_symbol(&mut self, name: &str, span: std::ops::Range<usize>) -> Parsed<()> {
        if self.symbols.insert(name.to_owned()) {
            return Ok(());
        }
        Err(self.error(span, format!("`@{name}` is defined twice")))
    }

    /// `() <{sym_name = .., function_type = .., arg_attrs = .., ..}> ({ ^bb0(..): .. }) : () -> ()`.
    fn generic_func(&mut self) -> Parsed<Func> {
        let span = self.span();
        self.expect(b'(')?;
        self.expect(b')')?;
        let mut head = self.generic_properties()?;
        self.expect(b'(')?;
        // The type may stand behind the body (old form), so the body is checked against it only if it is known here.
        let body_at = self.tok.start;
        let mut signature = function_type(&mut head);
        if signature.is_none() {
            self.skip_braces()?;
            self.expect(b')')?;
            self.generic_attrs(&mut head)?;
            signature = function_type(&mut head);
            self.reset(body_at);
        }
        let Some(signature) = signature else {
            return Err(self.error(span, "`func.func` needs a `function_type`"));
        };
        let arg_attrs = dict_array(head.remove("arg_attrs"), signature.inputs.len());
        let res_attrs = dict_array(head.remove("res_attrs"), signature.outputs.len());
        let results: Vec<_> =
            signature.outputs.into_iter().zip(res_attrs).map(|(ty, attrs)| ResultInfo { ty, attrs }).collect();
        let mut func = self.generic_body(&signature.inputs, &arg_attrs, results)?;
        self.expect(b')')?;
        let mut again = AttrList::default();
        self.generic_attrs(&mut again)?;
        for name in ["sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs"] {
            if let Some(a) = again.remove(name)
                && head.get(name).is_none()
                && name.starts_with("sym")
            {
                head.set(name, a);
            }
        }
        let mut all: Vec<_> = again.iter().map(|(n, a)| (n.to_owned(), a.clone())).collect();
        all.extend(head.iter().filter(|(n, _)| again.get(n).is_none()).map(|(n, a)| (n.to_owned(), a.clone())));
        head = self.attr_list(all, span.start)?;
        match head.remove("sym_name") {
            Some(Attr::Str(name)) => {
                self.define_symbol(&name, span)?;
                func.name = name;
            }
            _ => return Err(self.error(span, "`func.func` needs a `sym_name`")),
        }
        func.public = !matches!(head.remove("sym_visibility"), Some(Attr::Str(v)) if v == "private" || v == "nested");
        func.attrs = head;
        func.loc = self.trailing_loc()?.unwrap_or(LocTable::UNKNOWN);
        Ok(func)
    }

    fn generic_body(&mut self, inputs: &[Type], arg_attrs: &[AttrList], results: Vec<ResultInfo>) -> Parsed<Func> {
        let start = self.tok.start;
        if !self.at(b'{') {
            return self.expected("`{`");
        }
        self.bump();
        let args = if self.tok.kind == Kind::Caret {
            self.bump();
            let args = if self.at(b'(') { self.list(b'(', b')', Self::block_arg)? } else { Vec::new() };
            self.expect(b':')?;
            args
        } else {
            Vec::new()
        };
        if args.len() != inputs.len() || args.iter().zip(inputs).any(|(a, t)| a.2 != *t) {
            return Err(self.error(self.since(start), "the arguments of the body do not match the function's type"));
        }
        self.func_body(args, arg_attrs, results)
    }

    /// The body behind its opening brace.
    fn func_body(&mut self, args: Vec<BlockArg<'a>>, attrs: &[AttrList], results: Vec<ResultInfo>) -> Parsed<Func> {
        self.names = Names::default();
        let mut params = Vec::new();
        for ((name, span, ty, loc), attrs) in args.into_iter().zip(attrs) {
            let at = span.start;
            let value = match self.define(name, span, vec![ty])?.first() {
                Some(&v) => v,
                None => return Err(Failed),
            };
            let loc = loc.unwrap_or_else(|| self.place(at));
            params.push(Param { value, attrs: attrs.clone(), loc });
        }
        let types: Vec<Type> = results.iter().map(|r| r.ty.clone()).collect();
        let ops = self.block_ops(Some(&types), false)?;
        self.expect(b'}')?;
        if self.diags.len() >= MAX_DIAGS {
            return Err(Failed);
        }
        let mut func = empty_func();
        func.params = params;
        func.results = results;
        func.body.ops = ops;
        func.values = std::mem::take(&mut self.names).values;
        Ok(func)
    }

    fn skip_braces(&mut self) -> Parsed<()> {
        let mut open = 0u64;
        loop {
            match self.tok.kind {
                Kind::Punct(b'{') => open += 1,
                Kind::Punct(b'}') => open = open.saturating_sub(1),
                Kind::Eof | Kind::Bad => return self.expected("`}`"),
                _ if open == 0 => return self.expected("`{`"),
                _ => {}
            }
            self.bump();
            if open == 0 {
                return Ok(());
            }
        }
    }
}

fn empty_func() -> Func {
    Func {
        name: String::new(),
        public: true,
        params: Vec::new(),
        results: Vec::new(),
        values: Default::default(),
        body: Default::default(),
        attrs: AttrList::default(),
        loc: LocTable::UNKNOWN,
    }
}

fn function_type(attrs: &mut AttrList) -> Option<FuncType> {
    match attrs.remove("function_type") {
        Some(Attr::Type(Type::Func(t))) => Some(t),
        _ => None,
    }
}

/// `n` dictionaries: those of an array attribute, then empty ones.
fn dict_array(attr: Option<Attr>, n: usize) -> Vec<AttrList> {
    let mut lists: Vec<AttrList> = match attr {
        Some(Attr::Array(items)) => {
            items.into_iter().map(|a| if let Attr::Dict(d) = a { d } else { AttrList::default() }).collect()
        }
        _ => Vec::new(),
    };
    lists.resize(n, AttrList::default());
    lists
}
