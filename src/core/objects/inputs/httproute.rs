//! Reading an HTTPRoute.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::automaton::Automata;
use super::duration::duration;
use super::manifest::Specified;
use super::route::{any_request, match_count};
use super::schema::{self, exact, port, same_shape};
use super::text::{self, Refused};
use super::{
    BackendRef, Filters, LocalRef, Meta, ParentRef, ParseError, Regexes, Route, RouteKind,
    RouteRule, Unsupported, direct_response_filter, external_auth, session,
};
use crate::gateway_api::httproutes as gw;
use crate::model::{
    Cors, Fraction, HeaderEdits, HeaderMatch, Match, PathMatch, PathRewrite, QueryMatch, Redirect,
    Retry, Rewrite, StringMatch, Timeouts,
};
use crate::settings::RequestBody;

impl Route {
    pub(super) fn read_http(
        meta: Meta,
        Specified { metadata, spec }: Specified<gw::HttpRouteSpec>,
    ) -> Result<Self, ParseError> {
        let namespace = meta.name.namespace.clone();
        let rules = schema::at_most(
            "spec.rules",
            16,
            spec.rules.unwrap_or_else(|| vec![empty_rule()]),
        )?;
        rule_names(rules.iter().filter_map(|rule| rule.name.as_deref()))?;
        let hostnames = schema::at_most("spec.hostnames", 16, spec.hostnames.unwrap_or_default())?;
        let matches = rules.iter().filter_map(|rule| rule.matches.as_ref());
        match_count(matches.map(Vec::len).sum())?;
        let mut automata = Automata::of_a_route();
        let rules = rules.into_iter();
        let rules = rules.map(|r| rule(&namespace, r, &mut automata));
        Ok(Self {
            hostnames: schema::hostnames(&hostnames)?,
            parents: parents(spec.parent_refs.unwrap_or_default())?,
            rules: exact(rules)?,
            uses_defaults: spec.use_default_gateways == Some(gw::HttpRouteUseDefaultGateways::All),
            kind: RouteKind::Http,
            challenge: metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(SOLVER)),
            counted: is_counted(&metadata),
            unreadable: Vec::new(),
            meta,
        })
    }
}

/// The label of routes by which cert-manager answers ACME challenges
/// (`acme.cert-manager.io/http01-solver`).
pub(super) const SOLVER: &str = "acme.cert-manager.io/http01-solver";

/// The annotation of routes whose requests are counted by themselves, with the value `Route`.
const TRAFFIC_METRICS: &str = "gatewright.io/traffic-metrics";

/// True if the requests of a route with this metadata are counted by themselves.
pub(super) fn is_counted(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(TRAFFIC_METRICS))
        .is_some_and(|value| value == "Route")
}

/// Checks that names of rules are unique within a route.
pub(super) fn rule_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), ParseError> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ParseError::Schema(format!(
            "spec.rules: two rules are named {:?}",
            pair[0]
        ))),
        None => Ok(()),
    }
}

pub(super) fn empty_rule() -> gw::HttpRouteRules {
    gw::HttpRouteRules {
        backend_refs: None,
        filters: None,
        matches: None,
        name: None,
        retry: None,
        session_persistence: None,
        timeouts: None,
    }
}

pub(super) fn parents(refs: Vec<gw::HttpRouteParentRefs>) -> Result<Arc<[ParentRef]>, ParseError> {
    schema::at_most("spec.parentRefs", 32, refs)?
        .into_iter()
        .map(|parent| {
            Ok(ParentRef {
                port: parent
                    .port
                    .map(|number| port(number, "spec.parentRefs.port"))
                    .transpose()?,
                group: parent.group,
                kind: parent.kind,
                namespace: parent.namespace,
                name: parent.name,
                section: parent.section_name,
            })
        })
        .collect()
}

fn rule(
    namespace: &Arc<str>,
    mut rule: gw::HttpRouteRules,
    automata: &mut Automata,
) -> Result<RouteRule, ParseError> {
    let matches = schema::at_most("matches", 64, rule.matches.take().unwrap_or_default())?;
    let mut matches = exact(matches.into_iter().map(read_match))?;
    if matches.is_empty() {
        matches = vec![any_request()];
    }
    rule_of(namespace, rule, matches, automata)
}

/// Reads all fields of a rule but its matches. A GRPCRoute's rule has the same shape.
pub(super) fn rule_of(
    namespace: &Arc<str>,
    rule: gw::HttpRouteRules,
    matches: Vec<Match>,
    automata: &mut Automata,
) -> Result<RouteRule, ParseError> {
    if let Some(name) = &rule.name {
        text::rule_name("name", name)?;
    }
    let filters = filters(namespace, rule.filters.unwrap_or_default())?;
    let filters = filters.and_then(|filters| check_prefixes(filters, &matches));
    let backends = schema::at_most("backendRefs", 16, rule.backend_refs.unwrap_or_default())?;
    let filters = filters.and_then(|filters| {
        let name = filters.direct_response.as_ref();
        direct_response_filter::check(name, &matches, backends.len()).map(|()| filters)
    });
    if !backends.is_empty()
        && filters
            .as_ref()
            .is_ok_and(|filters| filters.redirect.is_some())
    {
        return Err(ParseError::Schema(
            "filters: a rule with RequestRedirect has no backendRefs".to_owned(),
        ));
    }
    let origins = filters
        .as_ref()
        .ok()
        .and_then(|filters| filters.cors.as_ref())
        .map_or(0, Cors::patterns);
    let checked = matches.iter().try_for_each(values);
    let (regexes, unmatched) = match checked
        .map_err(|Refused(text)| text)
        .and_then(|()| Regexes::of(&matches, origins, automata))
    {
        Ok(regexes) => (regexes, None),
        Err(why) => (Regexes::default(), Some(why)),
    };
    Ok(RouteRule {
        name: rule.name,
        matches,
        regexes,
        unmatched: unmatched.map(Box::from),
        filters: filters.map(|filters| (filters != Filters::default()).then(|| Box::new(filters))),
        backends: exact(backends.into_iter().map(|b| backend(namespace, b)))?,
        timeouts: rule.timeouts.map(timeouts).transpose()?.unwrap_or_default(),
        retry: rule.retry.map(retry).transpose()?.map(Box::new),
        session: rule
            .session_persistence
            .map(|asked| Box::new(session::read(asked))),
    })
}

fn timeouts(timeouts: gw::HttpRouteRulesTimeouts) -> Result<Timeouts, ParseError> {
    let request = timeouts.request.as_deref().map(duration).transpose()?;
    let backend_request = timeouts
        .backend_request
        .as_deref()
        .map(duration)
        .transpose()?;
    if request
        .zip(backend_request)
        .is_some_and(|(whole, one)| !whole.is_zero() && one > whole)
    {
        return Err(ParseError::Schema(
            "timeouts: backendRequest is longer than request".to_owned(),
        ));
    }
    Ok(Timeouts {
        request,
        backend_request,
    })
}

/// `ReplacePrefixMatch` needs every match of the rule to be a path prefix (CEL of the HTTPRoute
/// CRD).
fn check_prefixes(filters: Filters, matches: &[Match]) -> Result<Filters, Unsupported> {
    let by_prefix = matches!(filters.rewrite.path, Some(PathRewrite::Prefix(_)))
        || filters
            .redirect
            .as_ref()
            .is_some_and(|r| matches!(r.path, Some(PathRewrite::Prefix(_))));
    if by_prefix
        && !matches
            .iter()
            .all(|m| matches!(m.path, PathMatch::Prefix(_)))
    {
        return Err(Unsupported::Value(
            "ReplacePrefixMatch needs every match to be of type PathPrefix".to_owned(),
        ));
    }
    Ok(filters)
}

/// Checks texts of a match that the schema does not check.
fn values(m: &Match) -> Result<(), Refused> {
    for HeaderMatch { name, value } in &m.headers {
        text::header_value(&format!("matches.headers {name}"), value.text())?;
    }
    for QueryMatch { name, value } in &m.query {
        text::query_value(&format!("matches.queryParams {name}"), value.text())?;
    }
    Ok(())
}

fn read_match(m: gw::HttpRouteRulesMatches) -> Result<Match, ParseError> {
    let path = m.path.unwrap_or(gw::HttpRouteRulesMatchesPath {
        r#type: None,
        value: None,
    });
    let value = path.value.unwrap_or_else(|| "/".to_owned());
    let path = match path.r#type {
        Some(gw::HttpRouteRulesMatchesPathType::RegularExpression) => PathMatch::Regex(value),
        kind => {
            text::path("matches.path.value", &value)?;
            match kind {
                Some(gw::HttpRouteRulesMatchesPathType::Exact) => PathMatch::Exact(value),
                _ => {
                    let bare = value.trim_end_matches('/');
                    PathMatch::Prefix(if bare.is_empty() {
                        "/".to_owned()
                    } else {
                        bare.to_owned()
                    })
                }
            }
        }
    };
    let headers = header_matches(m.headers.unwrap_or_default())?;
    let mut query: Vec<QueryMatch> = Vec::new();
    for parameter in schema::at_most(
        "matches.queryParams",
        16,
        m.query_params.unwrap_or_default(),
    )? {
        text::query_name("matches.queryParams.name", &parameter.name)?;
        if query.iter().all(|q| q.name != parameter.name) {
            let value = match parameter.r#type {
                Some(gw::HttpRouteRulesMatchesQueryParamsType::RegularExpression) => {
                    StringMatch::Regex(parameter.value)
                }
                _ => StringMatch::Exact(parameter.value),
            };
            query.push(QueryMatch {
                name: parameter.name,
                value,
            });
        }
    }
    let method = m.method.map(same_shape).transpose()?;
    Ok(Match {
        path,
        call: None,
        method,
        headers,
        query,
    })
}

/// Reads conditions on headers.
pub(super) fn header_matches(
    list: Vec<gw::HttpRouteRulesMatchesHeaders>,
) -> Result<Vec<HeaderMatch>, ParseError> {
    let mut headers: Vec<HeaderMatch> = Vec::new();
    for header in schema::at_most("matches.headers", 16, list)? {
        text::header_name("matches.headers.name", &header.name)?;
        let name = header.name.to_ascii_lowercase();
        // Of several conditions on one header only the first counts (`HTTPHeaderMatch.name`).
        if headers.iter().all(|h| h.name != name) {
            let value = match header.r#type {
                Some(gw::HttpRouteRulesMatchesHeadersType::RegularExpression) => {
                    StringMatch::Regex(header.value)
                }
                _ => StringMatch::Exact(header.value),
            };
            headers.push(HeaderMatch { name, value });
        }
    }
    Ok(headers)
}

/// Reads a backend reference of a route in `namespace`.
pub(super) fn backend(
    namespace: &Arc<str>,
    r: gw::HttpRouteRulesBackendRefs,
) -> Result<BackendRef, ParseError> {
    let filters = filters(namespace, same_shape(r.filters.unwrap_or_default())?)?.and_then(|filters| {
        let answers = filters.redirect.is_some() || filters.direct_response.is_some();
        let only_of_rules = answers || filters.cors.is_some() || filters.auth.is_some();
        if only_of_rules || !filters.mirrors.is_empty() {
            let text = "backendRefs.filters: only header modifiers and URLRewrite are supported on a backend";
            return Err(Unsupported::Value(text.to_owned()));
        }
        Ok((filters != Filters::default()).then(|| Box::new(filters)))
    });
    Ok(BackendRef {
        target: LocalRef::backend(namespace, r.group, r.kind, r.namespace, r.name),
        port: r
            .port
            .map(|number| port(number, "backendRefs.port"))
            .transpose()?,
        weight: u32::try_from(r.weight.unwrap_or(1))
            .ok()
            .filter(|weight| *weight <= 1_000_000)
            .ok_or_else(|| {
                ParseError::Schema("backendRefs.weight: 0 to 1000000 is expected".to_owned())
            })?,
        filters,
    })
}

type Read<T> = Result<Result<T, Unsupported>, ParseError>;

fn filters(namespace: &Arc<str>, list: Vec<gw::HttpRouteRulesFilters>) -> Read<Filters> {
    let mut all = Filters::default();
    let mut seen = Vec::new();
    let mut verdict = Ok(());
    for filter in schema::at_most("filters", 16, list)? {
        let kind: String = same_shape(&filter.r#type)?;
        let missing = || {
            ParseError::Schema(format!(
                "filters: a filter of type {kind} needs its settings"
            ))
        };
        if seen.contains(&kind) && kind != "RequestMirror" {
            return Ok(Err(Unsupported::Incompatible(format!(
                "filter {kind} stands twice in one rule"
            ))));
        }
        match filter.r#type {
            gw::HttpRouteRulesFiltersType::RequestHeaderModifier => {
                all.request_headers = edits(same_shape(
                    filter.request_header_modifier.ok_or_else(missing)?,
                )?)?;
                verdict = verdict.and(headers("requestHeaderModifier", &all.request_headers));
            }
            gw::HttpRouteRulesFiltersType::ResponseHeaderModifier => {
                all.response_headers = edits(same_shape(
                    filter.response_header_modifier.ok_or_else(missing)?,
                )?)?;
                verdict = verdict.and(headers("responseHeaderModifier", &all.response_headers));
            }
            gw::HttpRouteRulesFiltersType::RequestMirror => {
                all.mirrors.push(mirror(
                    namespace,
                    filter.request_mirror.ok_or_else(missing)?,
                )?);
            }
            gw::HttpRouteRulesFiltersType::RequestRedirect => {
                let redirect = redirect(filter.request_redirect.ok_or_else(missing)?)?;
                verdict = verdict.and(new_path("requestRedirect.path", redirect.path.as_ref()));
                all.redirect = Some(redirect);
            }
            gw::HttpRouteRulesFiltersType::UrlRewrite => {
                let rewrite = filter.url_rewrite.ok_or_else(missing)?;
                let path = rewrite
                    .path
                    .map(|path| path_rewrite(same_shape(path)?))
                    .transpose()?;
                verdict = verdict.and(new_path("urlRewrite.path", path.as_ref()));
                all.rewrite = Rewrite {
                    hostname: one_host("urlRewrite.hostname", rewrite.hostname)?,
                    path,
                };
            }
            gw::HttpRouteRulesFiltersType::Cors => {
                all.cors = Some(cors(filter.cors.ok_or_else(missing)?)?)
            }
            gw::HttpRouteRulesFiltersType::ExternalAuth => {
                match external_auth::read(namespace, filter.external_auth.ok_or_else(missing)?)? {
                    Ok(auth) => all.auth = Some(auth),
                    Err(unsupported) => return Ok(Err(unsupported)),
                }
            }
            gw::HttpRouteRulesFiltersType::ExtensionRef => {
                let r = filter.extension_ref.ok_or_else(missing)?;
                match direct_response_filter::read(namespace, r) {
                    Ok(name) => all.direct_response = Some(name),
                    Err(unsupported) => return Ok(Err(unsupported)),
                }
            }
        }
        seen.push(kind);
    }
    if let Err(refused) = verdict {
        return Ok(Err(refused.into()));
    }
    if all.redirect.is_some() && all.rewrite != Rewrite::default() {
        let text = "filters RequestRedirect and URLRewrite cannot stand in one rule";
        return Ok(Err(Unsupported::Incompatible(text.to_owned())));
    }
    let others = [
        (all.redirect.is_some(), "RequestRedirect"),
        (all.rewrite != Rewrite::default(), "URLRewrite"),
        (!all.mirrors.is_empty(), "RequestMirror"),
        (all.cors.is_some(), "CORS"),
    ];
    if all.direct_response.is_some()
        && let Err(why) = direct_response_filter::alone(others)
    {
        return Ok(Err(why));
    }
    Ok(Ok(all))
}

/// Checks names and values of a header modifier.
fn headers(field: &str, edits: &HeaderEdits) -> Result<(), Refused> {
    for (name, value) in edits.set.iter().chain(&edits.add) {
        text::edited_header(field, name)?;
        text::header_value(&format!("{field} {name}"), value)?;
    }
    edits
        .remove
        .iter()
        .try_for_each(|name| text::edited_header(field, name))
}

fn new_path(field: &str, path: Option<&PathRewrite>) -> Result<(), Refused> {
    match path {
        Some(PathRewrite::Full(path)) => text::new_path(&format!("{field}.replaceFullPath"), path),
        Some(PathRewrite::Prefix(path)) => {
            text::new_path(&format!("{field}.replacePrefixMatch"), path)
        }
        Some(PathRewrite::Pattern { .. } | PathRewrite::PlainSlashes) | None => Ok(()),
    }
}

fn one_host(field: &str, hostname: Option<String>) -> Result<Option<String>, ParseError> {
    hostname
        .iter()
        .try_for_each(|hostname| text::precise_hostname(field, hostname))?;
    Ok(hostname)
}

fn edits(
    modifier: gw::HttpRouteRulesFiltersRequestHeaderModifier,
) -> Result<HeaderEdits, ParseError> {
    let set = modifier
        .set
        .unwrap_or_default()
        .into_iter()
        .map(|h| (h.name, h.value));
    let add = modifier
        .add
        .unwrap_or_default()
        .into_iter()
        .map(|h| (h.name, h.value));
    Ok(HeaderEdits {
        set: schema::at_most("set", 16, set.collect())?,
        add: schema::at_most("add", 16, add.collect())?,
        remove: schema::at_most("remove", 16, modifier.remove.unwrap_or_default())?,
    })
}

fn mirror(
    namespace: &Arc<str>,
    mirror: gw::HttpRouteRulesFiltersRequestMirror,
) -> Result<(LocalRef, Option<u16>, Fraction), ParseError> {
    let r = mirror.backend_ref;
    let number = r
        .port
        .map(|number| port(number, "requestMirror.backendRef.port"))
        .transpose()?;
    let fraction = match (mirror.fraction, mirror.percent) {
        (Some(f), _) => {
            let denominator = unsigned(f.denominator.unwrap_or(100));
            if denominator == 0 || unsigned(f.numerator) > denominator {
                let text = "requestMirror.fraction: numerator must not exceed denominator, which must be positive";
                return Err(ParseError::Schema(text.to_owned()));
            }
            Fraction {
                numerator: unsigned(f.numerator),
                denominator,
            }
        }
        (None, Some(percent)) => Fraction {
            numerator: unsigned(percent).min(100),
            denominator: 100,
        },
        (None, None) => Fraction {
            numerator: 1,
            denominator: 1,
        },
    };
    Ok((
        LocalRef::backend(namespace, r.group, r.kind, r.namespace, r.name),
        number,
        fraction,
    ))
}

fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn redirect(redirect: gw::HttpRouteRulesFiltersRequestRedirect) -> Result<Redirect, ParseError> {
    let status = redirect.status_code.unwrap_or(302);
    let known = [301, 302, 303, 307, 308]
        .into_iter()
        .find(|code| i64::from(*code) == status);
    Ok(Redirect {
        default_port: 80,
        scheme: redirect.scheme.map(same_shape).transpose()?,
        hostname: one_host("requestRedirect.hostname", redirect.hostname)?,
        port: redirect
            .port
            .map(|number| port(number, "requestRedirect.port"))
            .transpose()?,
        path: redirect
            .path
            .map(|path| path_rewrite(same_shape(path)?))
            .transpose()?,
        status: known.ok_or_else(|| {
            ParseError::Schema(format!(
                "requestRedirect.statusCode: {status} is not supported"
            ))
        })?,
    })
}

fn path_rewrite(path: gw::HttpRouteRulesFiltersUrlRewritePath) -> Result<PathRewrite, ParseError> {
    fn missing(field: &str) -> ParseError {
        ParseError::Schema(format!("path: the type needs {field}"))
    }
    Ok(match path.r#type {
        gw::HttpRouteRulesFiltersUrlRewritePathType::ReplaceFullPath => PathRewrite::Full(
            path.replace_full_path
                .ok_or_else(|| missing("replaceFullPath"))?,
        ),
        gw::HttpRouteRulesFiltersUrlRewritePathType::ReplacePrefixMatch => PathRewrite::Prefix(
            path.replace_prefix_match
                .ok_or_else(|| missing("replacePrefixMatch"))?,
        ),
    })
}

fn cors(cors: gw::HttpRouteRulesFiltersCors) -> Result<Cors, ParseError> {
    fn list(
        field: &str,
        list: Option<Vec<String>>,
        check: fn(&str, &str) -> Result<(), Refused>,
    ) -> Result<Vec<String>, ParseError> {
        let list = schema::at_most(field, 64, list.unwrap_or_default())?;
        list.iter().try_for_each(|item| check(field, item))?;
        Ok::<_, ParseError>(list)
    }
    let origins = schema::at_most(
        "cors.allowOrigins",
        64,
        cors.allow_origins.unwrap_or_default(),
    )?;
    let origins = origins
        .iter()
        .map(|origin| text::origin("cors.allowOrigins", origin))
        .collect::<Result<_, _>>();
    Ok(Cors {
        allow_origins: origins?,
        allow_methods: list("cors.allowMethods", cors.allow_methods, text::method_or_any)?,
        allow_headers: list("cors.allowHeaders", cors.allow_headers, text::header_or_any)?,
        expose_headers: list(
            "cors.exposeHeaders",
            cors.expose_headers,
            text::header_or_any,
        )?,
        allow_credentials: cors.allow_credentials.unwrap_or(false),
        max_age: Duration::from_secs(u64::try_from(cors.max_age.unwrap_or(5)).unwrap_or(0)),
    })
}

fn retry(retry: gw::HttpRouteRulesRetry) -> Result<Retry, ParseError> {
    fn status(code: i64) -> Result<u16, ParseError> {
        u16::try_from(code)
            .ok()
            .filter(|code| (400..=599).contains(code))
            .ok_or_else(|| {
                ParseError::Schema(format!(
                    "retry.codes: {code} is not an error status (400 to 599)"
                ))
            })
    }
    Ok(Retry {
        codes: retry
            .codes
            .unwrap_or_default()
            .into_iter()
            .map(status)
            .collect::<Result<_, _>>()?,
        attempts: u32::try_from(retry.attempts.unwrap_or(1)).unwrap_or(0),
        backoff: retry.backoff.as_deref().map(duration).transpose()?,
        kept_bytes: RequestBody::MOST_BUFFERED,
    })
}
