use yoi_wire::preset::ParserName;

use super::{PROGRAMS, program, told};

fn of(parser: ParserName, run: &str) -> Vec<String> {
    let program = program(parser);
    told(&program.events_of(program.run(run).as_bytes()))
}

#[test]
fn print() {
    for program in PROGRAMS {
        for (name, _) in program.runs {
            println!("== {name}\n{:#?}", of(program.parser, name));
        }
    }
}
