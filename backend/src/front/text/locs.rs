//! Locations: `loc(...)`, and the aliases that stand for them.

use super::lexer::Kind;
use super::parser::{Alias, Parsed, Parser};
use crate::hlo::{Loc, LocId};

impl<'a> Parser<'a> {
    /// Finds the aliases of the file, which may be used before they are defined, and resolves those that are locations. Files
    /// list the innermost first, so doing it in order follows no chain of aliases by recursion.
    pub(super) fn collect_aliases(&mut self) -> Parsed<()> {
        let mut found = Vec::new();
        let mut depth = 0i64;
        loop {
            match self.tok.kind {
                Kind::Eof => break,
                Kind::Punct(b'{' | b'(' | b'[') => depth += 1,
                Kind::Punct(b'}' | b')' | b']') => depth -= 1,
                Kind::Hash | Kind::Bang if depth == 0 => {
                    let (name, span) = (self.text(), self.span());
                    self.bump();
                    if self.eat(b'=') {
                        if self.aliases.insert(name, Alias::Text(self.tok.start)).is_some() {
                            return Err(self.error(span, format!("`{name}` is defined twice")));
                        }
                        found.push((name, self.tok.start));
                    }
                    continue;
                }
                _ => {}
            }
            self.bump();
        }
        for (name, at) in found {
            if let Some(Alias::Loc(_)) = self.aliases.get(name) {
                continue;
            }
            self.reset(at);
            if self.at_word("loc") {
                self.aliases.insert(name, Alias::Busy);
                let id = self.loc()?;
                self.aliases.insert(name, Alias::Loc(id));
            } else {
                self.alias_body(name)?;
            }
            self.alias_ends.insert(at, self.last_end);
        }
        self.reset(0);
        Ok(())
    }

    /// `loc(...)`, if it is there.
    pub(super) fn trailing_loc(&mut self) -> Parsed<Option<LocId>> {
        if self.at_word("loc") { Ok(Some(self.loc()?)) } else { Ok(None) }
    }

    /// `loc(...)`.
    pub(super) fn loc(&mut self) -> Parsed<LocId> {
        self.expect_word("loc")?;
        self.expect(b'(')?;
        let loc = self.loc_body()?;
        self.expect(b')')?;
        Ok(loc)
    }

    fn loc_body(&mut self) -> Parsed<LocId> {
        self.nested(|p| p.loc_inner())
    }

    fn loc_inner(&mut self) -> Parsed<LocId> {
        match (self.tok.kind, self.text()) {
            (Kind::Hash, name) => self.loc_alias(name),
            (Kind::Str, _) => {
                let text = self.string()?;
                if self.eat(b':') {
                    return self.file_loc(text);
                }
                let child = if self.eat(b'(') {
                    let child = self.loc_body()?;
                    self.expect(b')')?;
                    child
                } else {
                    self.locs.add(Loc::Unknown)
                };
                Ok(self.locs.add(Loc::Name(text, child)))
            }
            (Kind::Word, "unknown") => {
                self.bump();
                Ok(self.locs.add(Loc::Unknown))
            }
            (Kind::Word, "callsite") => {
                self.bump();
                self.expect(b'(')?;
                let callee = self.loc_body()?;
                self.expect_word("at")?;
                let caller = self.loc_body()?;
                self.expect(b')')?;
                Ok(self.locs.add(Loc::CallSite(callee, caller)))
            }
            (Kind::Word, "fused") => {
                self.bump();
                if self.eat(b'<') {
                    self.attr()?;
                    self.expect(b'>')?;
                }
                let parts = self.list(b'[', b']', Self::loc_body)?;
                Ok(self.locs.add(Loc::Fused(parts)))
            }
            _ => self.expected("a location"),
        }
    }

    /// `line:col`, perhaps a range (`3:4 to 5:6`, `3:4 to :6`), behind `"file":`. The start is kept.
    fn file_loc(&mut self, file: String) -> Parsed<LocId> {
        let number = |p: &mut Self| p.int().map(|n| u32::try_from(n).unwrap_or(0));
        let line = number(self)?;
        self.expect(b':')?;
        let col = number(self)?;
        if self.eat_word("to") {
            if !self.eat(b':') {
                number(self)?;
                self.expect(b':')?;
            }
            number(self)?;
        }
        Ok(self.locs.add(Loc::File { file, line, col }))
    }

    fn loc_alias(&mut self, name: &'a str) -> Parsed<LocId> {
        let span = self.span();
        self.bump();
        let at = match self.aliases.get(name) {
            Some(&Alias::Loc(id)) => return Ok(id),
            Some(&Alias::Text(at)) => at,
            Some(Alias::Busy) => return Err(self.error(span, format!("`{name}` stands for itself"))),
            None => return Err(self.error(span, format!("location `{name}` is not defined"))),
        };
        self.aliases.insert(name, Alias::Busy);
        let back = self.last_end;
        self.reset(at);
        let loc = self.loc();
        self.alias_ends.insert(at, self.last_end);
        self.reset(back);
        // A location that failed is not tried again.
        let id = loc.as_ref().copied().unwrap_or(crate::hlo::LocTable::UNKNOWN);
        self.aliases.insert(name, Alias::Loc(id));
        loc
    }

    /// Passes over an alias definition at the current token.
    pub(super) fn skip_alias(&mut self) -> Parsed<()> {
        let name = self.text();
        self.bump();
        self.expect(b'=')?;
        match self.alias_ends.get(&self.tok.start).copied() {
            Some(end) => {
                self.reset(end);
                Ok(())
            }
            None => self.alias_body(name),
        }
    }

    fn alias_body(&mut self, name: &str) -> Parsed<()> {
        if self.at_word("loc") {
            self.loc().map(drop)
        } else if name.starts_with('!') {
            self.ty().map(drop)
        } else {
            self.attr().map(drop)
        }
    }
}
