//! The files of the page, as they are in the program. There is no build of them.

/// A file.
pub(super) struct File {
    /// Its path below that of the session.
    pub(super) name: &'static str,
    /// Its content type.
    pub(super) kind: &'static str,
    /// Its content.
    pub(super) text: &'static str,
}

const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! file {
    ($name:literal, $kind:expr) => {
        file!($name, $kind, $name)
    };
    ($name:literal, $kind:expr, $path:literal) => {
        File {
            name: $path,
            kind: $kind,
            text: include_str!(concat!("page/", $name)),
        }
    };
}

/// All files.
pub(super) const FILES: [File; 14] = [
    file!("index.html", HTML, ""),
    file!("page.css", CSS),
    file!("icon.svg", SVG),
    file!("page.js", SCRIPT),
    file!("element.js", SCRIPT),
    file!("answer.js", SCRIPT),
    file!("hosts.js", SCRIPT),
    file!("list.js", SCRIPT),
    file!("host.js", SCRIPT),
    file!("certificates.js", SCRIPT),
    file!("owners.js", SCRIPT),
    file!("policies.js", SCRIPT),
    file!("envoys.js", SCRIPT),
    file!("objects.js", SCRIPT),
];

/// The page that leads on to another path of this server.
pub(super) fn lead_on(path: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><title>Gatewright</title>\
         <meta http-equiv=\"refresh\" content=\"0;url={path}\">\
         <p><a href=\"{path}\">Open the page</a></p></html>\n"
    )
}
