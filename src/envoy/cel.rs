//! Expressions of the Common Expression Language as trees, where Envoy does not parse text.

use envoy_types::pb::cel::expr::{
    Constant, Expr, ParsedExpr,
    constant::ConstantKind,
    expr::{Call, ExprKind, Ident, Select},
};
use envoy_types::pb::xds::r#type::v3::CelExpression;

/// A field of a variable.
pub(super) fn field(variable: &str, name: &str) -> Expr {
    let operand = expr(ExprKind::IdentExpr(Ident {
        name: variable.to_owned(),
    }));
    expr(ExprKind::SelectExpr(Box::new(Select {
        operand: Some(Box::new(operand)),
        field: name.to_owned(),
        test_only: false,
    })))
}

/// A text.
pub(super) fn text(value: &str) -> Expr {
    constant(ConstantKind::StringValue(value.to_owned()))
}

/// `true` or `false`.
pub(super) fn truth(value: bool) -> Expr {
    constant(ConstantKind::BoolValue(value))
}

/// A function of the language, by its name in trees, such as `_<_`.
pub(super) fn call<const N: usize>(function: &str, args: [Expr; N]) -> Expr {
    made(None, function, args.into())
}

/// A method.
pub(super) fn method(target: Expr, function: &str, argument: Expr) -> Expr {
    made(Some(Box::new(target)), function, vec![argument])
}

/// The expression of a configuration.
pub(super) fn expression(mut root: Expr) -> CelExpression {
    number(&mut root, &mut 0);
    CelExpression {
        cel_expr_parsed: Some(ParsedExpr {
            expr: Some(root),
            source_info: None,
        }),
        ..Default::default()
    }
}

fn constant(kind: ConstantKind) -> Expr {
    expr(ExprKind::ConstExpr(Constant {
        constant_kind: Some(kind),
    }))
}

fn made(target: Option<Box<Expr>>, function: &str, args: Vec<Expr>) -> Expr {
    expr(ExprKind::CallExpr(Box::new(Call {
        target,
        function: function.to_owned(),
        args,
    })))
}

fn expr(kind: ExprKind) -> Expr {
    Expr {
        id: 0,
        expr_kind: Some(kind),
    }
}

/// Gives each node of a tree a number of its own.
fn number(expr: &mut Expr, last: &mut i64) {
    *last += 1;
    expr.id = *last;
    match &mut expr.expr_kind {
        Some(ExprKind::CallExpr(call)) => {
            let parts = call.target.as_deref_mut().into_iter().chain(&mut call.args);
            parts.for_each(|part| number(part, last));
        }
        Some(ExprKind::SelectExpr(select)) => {
            let operand = select.operand.as_deref_mut();
            operand.into_iter().for_each(|part| number(part, last));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_nodes_have_one_number() {
        let root = call("_<_", [field("request", "id"), text("8")]);
        let made = expression(root).cel_expr_parsed.expect("a tree");
        let root = made.expr.expect("a root");
        let Some(ExprKind::CallExpr(call)) = root.expr_kind else {
            panic!("a call")
        };
        let ids: Vec<i64> = call.args.iter().map(|arg| arg.id).collect();
        assert_eq!(root.id, 1, "of the whole");
        assert_eq!(ids, [2, 4], "of its parts; the variable is 3");
    }
}
