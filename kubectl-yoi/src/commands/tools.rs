//! `tools`: what an agent is offered.

use yoi_wire::engine_api::ToolList;
use yoi_wire::entry::OfferedTool;

use crate::args::{OutputFormat, ToolsOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

/// Letters of a description in the table.
const DESCRIPTION_CHARS: usize = 100;

pub async fn tools(cluster: &Cluster, output: Option<OutputFormat>, args: &ToolsOptions) -> Result<(), Error> {
    let ToolList { tools } = cluster.engine(&args.name, "tools", "tools").await?;
    show::objects(output, &tools, |tool| show::one_line(&tool.name), || table(&args.name, &tools))
}

fn table(agent: &str, tools: &[OfferedTool]) -> String {
    if tools.is_empty() {
        return format!("{agent} is offered no tools\n");
    }
    let mut table = show::table(&["name", "description"]);
    for OfferedTool { name, description, schema: _ } in tools {
        table.add_row([name, &show::shortened(&show::one_line(description), DESCRIPTION_CHARS)].map(show::cell));
    }
    show::lines(&table)
}
