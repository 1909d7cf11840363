#![no_main]

gatewright_fuzz::guided!("ca");
