#![no_main]

gatewright_fuzz::guided!("xds_conversation");
