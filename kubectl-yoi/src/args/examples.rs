//! Examples of each verb, for its `--help`.

pub const RUN: &str = "Examples:
  kubectl yoi run dave --project yoi --task \"Look around.\" --wait
  kubectl yoi run dave -p yoi -t - --stop-when-done --wait < task.txt
  kubectl yoi run eve -p yoi --fork alice --peer alice --env LEVEL=2
  kubectl yoi run dave -p yoi --claim dave-session     # go on with the session of a former dave
  kubectl yoi run web -p yoi --program claude --image IMAGE --task \"Mend the build.\" --wait
  kubectl yoi run lint -p yoi --command --task \"all\" --wait -- make lint
  kubectl yoi run dave -p yoi --dry-run=client -o yaml";
pub const INIT: &str = "Examples:
  kubectl yoi init                      # prints the project of this clone, or of this folder without git
  kubectl yoi init --apply              # then: kubectl yoi run dave --task TASK --wait
  kubectl yoi init --git-secret clone-key --image registry.example/dev:1 --path /workspace --apply
  kubectl yoi init --model-provider openai --model MODEL --model-secret model-key/apiKey --program claude --apply
  kubectl yoi init -n team | kubectl apply -f -";
pub const LS: &str = "Examples:
  kubectl yoi ls
  kubectl yoi ls agents -o wide
  kubectl yoi ls workspaces -A
  kubectl yoi ls agents -l team=blue -w";
pub const LOG: &str = "Examples:
  kubectl yoi log alice --tail 20
  kubectl yoi log alice --since 10m
  kubectl yoi log alice -f
  kubectl yoi log alice --conversation review
  kubectl yoi log alice -o json | jq -r .entry.kind";
pub const SEND: &str = "Examples:
  kubectl yoi send alice \"How are you?\"
  kubectl yoi send alice --wait - < question.txt
  kubectl yoi send alice --id 0197c0de-0000-7000-8000-000000000001 \"Once only.\"";
pub const ATTACH: &str = "Examples:
  kubectl yoi attach alice
  kubectl yoi attach alice --tail 200
  kubectl yoi attach alice -o json | jq -r .type

Keys: Enter sends; y, a or n REASON answers a call that waits; Ctrl-C pauses, Ctrl-X cancels, Ctrl-D leaves, Tab shows and hides what tools did; :help lists all.
Without a terminal it prints lines.";
pub const APPROVALS: &str = "Examples:
  kubectl yoi approvals
  kubectl yoi approvals -A -o json
  kubectl yoi approvals alice";
pub const APPROVE: &str = "Examples:
  kubectl yoi approve alice 57
  kubectl yoi approve alice 57 --always    # and what the same rules ask about in this conversation";
pub const DENY: &str = "Examples:
  kubectl yoi deny alice 57 --because \"Not on a Friday.\"";
pub const PAUSE: &str = "Examples:
  kubectl yoi pause alice";
pub const RESUME: &str = "Examples:
  kubectl yoi resume alice";
pub const CANCEL: &str = "Examples:
  kubectl yoi cancel alice";
pub const MODE: &str = "Examples:
  kubectl yoi mode alice planning                     # it looks, and changes nothing
  kubectl yoi mode alice coding --conversation review
  kubectl yoi mode alice planning --force             # cancels the run under way";
pub const COMPACT: &str = "Examples:
  kubectl yoi compact alice";
pub const REWIND: &str = "Examples:
  kubectl yoi rewind alice              # lists the inputs
  kubectl yoi rewind alice 120          # what tools did to the tree stays";
pub const CONVERSATION: &str = "Examples:
  kubectl yoi conversation start alice review
  kubectl yoi send alice --conversation review --wait \"What would break?\"
  kubectl yoi conversation ls alice
  kubectl yoi conversation stop alice review      # its log stays";
pub const CONVERSATION_START: &str = "Examples:
  kubectl yoi conversation start alice review";
pub const CONVERSATION_LS: &str = "Examples:
  kubectl yoi conversation ls alice
  kubectl yoi conversation ls alice -o json";
pub const CONVERSATION_STOP: &str = "Examples:
  kubectl yoi conversation stop alice review      # its log stays";
pub const TOP: &str = "Examples:
  kubectl yoi top
  kubectl yoi top alice -o json";
pub const ASSETS: &str = "Examples:
  kubectl yoi assets alice
  kubectl yoi assets alice show review
  kubectl yoi assets alice search \"make deploy\"
  kubectl yoi assets alice reload --strict
  kubectl yoi assets alice -o json";
pub const EVENTS: &str = "Examples:
  kubectl yoi events alice --tail 50
  kubectl yoi events alice -f
  kubectl yoi events alice -f -o json | jq -r 'select(.type == \"policy.denied\").data.rule'
  kubectl yoi events alice --conversation review --after CURSOR     # the cursor of the last event that was read
  kubectl yoi events alice send conversation.cancel";
pub const EVENTS_SEND: &str = "Examples:
  kubectl yoi events alice send conversation.user.message --data '{\"text\": \"CI failed: look at the log\"}'
  kubectl yoi events alice send conversation.mode.switch.requested --data '{\"mode\": \"planning\", \"force\": true}'
  kubectl yoi events alice send conversation.cancel --conversation review";
pub const TOOLS: &str = "Examples:
  kubectl yoi tools alice
  kubectl yoi tools alice -o json | jq '.items[0].schema'
  kubectl yoi tools alice run Shell --args '{\"command\": \"make test\"}'";
pub const TOOLS_RUN: &str = "Examples:
  kubectl yoi tools alice run Shell --args '{\"command\": \"make test\"}'
  kubectl yoi tools alice run Read --args '{\"path\": \"README.md\"}' --conversation review
  kubectl yoi tools alice run Shell --args '{\"command\": \"git push\"}' --timeout 1h     # until a person has approved it";
pub const SCOPE: &str = "Examples:
  kubectl yoi scope alice
  kubectl yoi scope alice -o json | jq -r '.covers[].path'";
pub const PROJECTION: &str = "Examples:
  kubectl yoi projection alice timeline
  kubectl yoi projection alice pending_tool_calls -o json
  kubectl yoi projection alice diagnostics --conversation review";
pub const EXPORT: &str = "Examples:
  kubectl yoi export alice -f alice.tar
  kubectl yoi export alice | tar -t";
pub const PEER: &str = "Examples:
  kubectl yoi peer alice bob
  kubectl yoi peer --rm alice bob";
pub const STOP: &str = "Examples:
  kubectl yoi stop alice --wait
  kubectl yoi stop --all
  kubectl yoi stop lead --tree          # and the agents that lead has started
  kubectl yoi stop -l team=blue";
pub const SUSPEND: &str = "Examples:
  kubectl yoi suspend alice --wait
  kubectl yoi suspend -l team=blue";
pub const START: &str = "Examples:
  kubectl yoi start alice --wait
  kubectl yoi start alice --refresh     # with the project as it is now
  kubectl yoi start -l team=blue";
pub const RESTORE: &str = "Examples:
  kubectl yoi restore alice --wait
  kubectl yoi restore -l team=blue";
pub const FORK: &str = "Examples:
  kubectl yoi fork alice alice-2 --task \"Try the other way.\"
  kubectl yoi fork alice alice-2 --wait      # then: kubectl yoi send alice-2 \"What would you do?\"";
pub const MERGE: &str = "Examples:
  kubectl yoi merge child --dry-run               # into the agent that has started it
  kubectl yoi merge child
  kubectl yoi merge alice --into bob --strategy theirs
  kubectl yoi merge alice --into main             # in a clone with branch main checked out
  kubectl yoi merge child -o json | jq -r '.conflicts[].path'";
pub const RESTART: &str = "Examples:
  kubectl yoi restart alice --wait      # with the spec and the Secret as they are now
  kubectl yoi restart --all";
pub const RM: &str = "Examples:
  kubectl yoi rm dave                   # says what it would delete
  kubectl yoi rm dave --force           # its session stays
  kubectl yoi rm dave --force --purge   # its session goes too";
pub const DIFF: &str = "Examples:
  kubectl yoi diff alice
  kubectl yoi diff alice --since-commit
  kubectl yoi diff alice --name-only
  kubectl yoi diff alice --name-only -z | xargs -0 -n 1
  kubectl yoi diff alice -o json | jq -r .text";
pub const PATCH: &str = "Examples:
  kubectl yoi patch alice | git am
  kubectl yoi patch alice --bundle > alice.bundle && git fetch alice.bundle HEAD && git log FETCH_HEAD";
pub const PULL: &str = "Examples:
  kubectl yoi pull alice                # then: git log alice
  kubectl yoi pull alice --branch review/alice
  kubectl yoi pull alice --commit -m \"What alice left\"
  kubectl yoi pull alice --apply --dry-run     # what would be laid on the working tree
  kubectl yoi pull alice --apply
  kubectl yoi pull alice -o json | jq -r .commit";
pub const PUSH: &str = "Examples:
  kubectl yoi push alice                # to branch yoi/alice of the project's repository
  kubectl yoi push alice --branch fix/login --commit -m \"What alice left\"
  kubectl yoi push --all
  kubectl yoi push alice --force-with-lease    # over what the last push of alice left there
  kubectl yoi push alice -o json | jq -r .commit";
pub const TAKE: &str = "Examples:
  kubectl yoi take yoi                  # as its folder is now, with what is not committed
  kubectl yoi take yoi --wait           # until agents can be made from it";
pub const REFRESH: &str = "Examples:
  kubectl yoi refresh yoi               # until trees are made from the commit that the branch is at
  kubectl yoi refresh yoi -o json | jq -r .status.generation.revision";
pub const SYNC: &str = "Examples:
  kubectl yoi sync                      # in a clone or folder with a project: then kubectl yoi run dave --task TASK --wait
  kubectl yoi sync --watch              # each time that the tree has changed
  kubectl yoi sync yoi --dry-run        # how much it would be
  kubectl yoi sync yoi --include '.env' --include 'generated/**'";
pub const SSH: &str = "Examples:
  kubectl yoi ssh alice                          # a shell in her tree
  kubectl yoi ssh alice -- make test             # word by word; a line of shell: -- sh -c 'make test | tail'
  rsync -a alice.default.yoi:/workspace/out .    # with `kubectl yoi ssh-config` in ~/.ssh/config

Whoever runs Yoi allows it with the chart's value gateway.ssh, and the agent's image brings OpenSSH's server.";
pub const SSH_CONFIG: &str = "Examples:
  kubectl yoi ssh-config > ~/.ssh/yoi.conf       # and once, as first line of ~/.ssh/config: Include yoi.conf
  kubectl yoi ssh-config alice -n team
  code --remote ssh-remote+alice.default.yoi /workspace";
pub const HOST: &str = "Examples:
  kubectl yoi host check ann@build.example
  kubectl yoi host add ann@build.example:2222 --name build
  kubectl yoi host up build                       # then: kubectl --context build get nodes
  kubectl yoi host ls";
pub const HOST_UP: &str = "Examples:
  kubectl yoi host up ann@build.example           # the context is called build
  kubectl yoi host up build --bundle yoi-0.1.0-x86_64.tar.zst --trees 100";
pub const HOST_CONNECT: &str = "Examples:
  kubectl yoi host connect build                  # as the context does it before each line";
pub const HOST_DOWN: &str = "Examples:
  kubectl yoi host down build
  kubectl yoi host down build --yes";
pub const HOST_CHECK: &str = "Examples:
  kubectl yoi host check ann@build.example        # jump hosts and keys as ~/.ssh/config has them
  kubectl yoi host check build -o json";
pub const HOST_ADD: &str = "Examples:
  kubectl yoi host add ann@build.example:2222 --name build";
pub const HOST_LS: &str = "Examples:
  kubectl yoi host ls -o json";
pub const HOST_RM: &str = "Examples:
  kubectl yoi host rm build";
pub const VM: &str = "Examples:
  kubectl yoi vm up
  kubectl yoi vm ls
  kubectl yoi vm down";
pub const VM_UP: &str = "Examples:
  kubectl yoi vm up                     # the machine yoi, by Lima, Colima or WSL, whichever is installed
  kubectl yoi vm up big --with lima --cpus 8 --memory 16 --disk 100";
pub const VM_DOWN: &str = "Examples:
  kubectl yoi vm down                   # its disk stays
  kubectl yoi vm down big --delete";
pub const VM_LS: &str = "Examples:
  kubectl yoi vm ls -o json";
pub const WORKSPACE: &str = "Examples:
  kubectl yoi workspace create ci-1 --project yoi --claim --ttl 1m
  kubectl yoi workspace ls
  kubectl yoi workspace rm ci-1 --force";
pub const WORKSPACE_CREATE: &str = "Examples:
  kubectl yoi workspace create ci-1 --project yoi --claim --ttl 1m
  kubectl yoi workspace create ci-2 --git https://git.example/p.git --ref main --claim --immediate --wait
  kubectl yoi workspace create pr-7 --project yoi --revision refs/pull/7/head --claim
  kubectl yoi workspace create try --fork alice --claim --quota 10Gi";
pub const WORKSPACE_LS: &str = "Examples:
  kubectl yoi workspace ls -A -o wide
  kubectl yoi workspace ls -w";
pub const WORKSPACE_RM: &str = "Examples:
  kubectl yoi workspace rm ci-1 ci-2               # says what it would delete
  kubectl yoi workspace rm ci-1 ci-2 --force
  kubectl yoi workspace rm -l pipeline=nightly --force";
pub const SESSION: &str = "Examples:
  kubectl yoi session ls
  kubectl yoi session log dave-session
  kubectl yoi session prune --older-than 30d";
pub const SESSION_LS: &str = "Examples:
  kubectl yoi session ls
  kubectl yoi session ls -A -o json";
pub const SESSION_LOG: &str = "Examples:
  kubectl yoi session log dave-session
  kubectl yoi session log dave-session --tail 20 -o json";
pub const SESSION_EXPORT: &str = "Examples:
  kubectl yoi session export dave-session -f dave.tar";
pub const SESSION_RM: &str = "Examples:
  kubectl yoi session rm dave-session             # tells what it would do
  kubectl yoi session rm dave-session --force";
pub const SESSION_PRUNE: &str = "Examples:
  kubectl yoi session prune --older-than 30d      # tells what it would do
  kubectl yoi session prune --older-than 30d --force";
pub const TREES: &str = "Examples:
  kubectl yoi trees                                 # of all nodes
  kubectl yoi trees --node worker-1 -o json
  kubectl yoi trees discard worker-1 --bases --force";
pub const TREES_SHOW: &str = "Examples:
  kubectl yoi trees show worker-1 0197c0de-0000-4000-8000-000000000001";
pub const TREES_DISCARD: &str = "Examples:
  kubectl yoi trees discard worker-1 0197c0de-0000-4000-8000-000000000001           # says what it would discard
  kubectl yoi trees discard worker-1 0197c0de-0000-4000-8000-000000000001 --force
  kubectl yoi trees discard worker-1 --bases --force";
pub const DOCTOR: &str = "Examples:
  kubectl yoi doctor
  kubectl yoi doctor -A -o json";
pub const EXPLAIN: &str = "Examples:
  kubectl yoi explain SecretMissing";
pub const CRDS: &str = "Examples:
  kubectl yoi crds | kubectl apply --server-side --force-conflicts -f -";
pub const VERSION: &str = "Examples:
  kubectl yoi version
  kubectl yoi version --client -o json";
pub const COMPLETION: &str = "Examples:
  source <(kubectl yoi completion bash)    # needs the package bash-completion
  kubectl yoi completion zsh > \"${fpath[1]}/_kubectl-yoi\"

`kubectl yoi <TAB>` needs no script of ours, only kubectl's own: link this program as kubectl_complete-yoi on PATH.";
