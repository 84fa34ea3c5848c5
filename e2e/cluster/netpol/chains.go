package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"reflect"
	"strings"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/utils"
	core "k8s.io/api/core/v1"
)

// The controller's view of the filter table: its own chains and no others.
//
// As it comes, the controller saves the whole table, thinks, and writes the whole table. What kube-proxy changed in between is undone: a Service whose
// first Pod got ready in that moment would refuse connections until kube-proxy writes again. Here the others' chains are neither shown nor written.
type ownChains struct {
	// After each round that was written.
	applied func()
	// After each that could not be.
	failed func()
	// Chains that were there when the round began.
	present []string
}

// What the policies let through, the controller accepts for everybody. Then kube-proxy could not refuse what goes to a Service without Pods, and
// instead of a refusal would come silence.
const acceptsAll = "-m mark --mark 0x20000/0x20000 -j ACCEPT"

var ownPrefixes = []string{"KUBE-ROUTER-", "KUBE-NWPLCY-", "KUBE-POD-FW-"}

// The chain that a line of iptables-save declares (`:NAME POLICY [0:0]`) or adds a rule to (`-A NAME ...`).
func chainOf(line string) (name string, declared bool) {
	if rest, found := strings.CutPrefix(line, ":"); found {
		name, _, _ = strings.Cut(rest, " ")
		return name, true
	}
	if words := strings.Fields(line); len(words) > 1 && strings.HasPrefix(line, "-") {
		return words[1], false
	}
	return "", false
}

func isOwn(chain string) bool {
	for _, prefix := range ownPrefixes {
		if strings.HasPrefix(chain, prefix) {
			return true
		}
	}
	return false
}

// The lines of iptables-save that are about the controller's own chains, and the names of these.
func ownLines(saved string) (lines, chains []string) {
	for line := range strings.Lines(saved) {
		line = strings.TrimSuffix(line, "\n")
		name, declared := chainOf(line)
		if !isOwn(name) {
			continue
		}
		lines = append(lines, line)
		if declared {
			chains = append(chains, name)
		}
	}
	return lines, chains
}

// Input for `iptables-restore --noflush`, which empties the chains that it declares and leaves others alone: the wanted lines, and the end of the
// chains that are present and not among them.
func replacement(table string, present []string, wanted string) string {
	lines, chains := ownLines(wanted)
	kept := map[string]bool{}
	for _, chain := range chains {
		kept[chain] = true
	}
	var declared, rules, deleted strings.Builder
	for _, line := range lines {
		if strings.HasPrefix(line, ":") {
			fmt.Fprintln(&declared, line)
		} else if !strings.Contains(line, acceptsAll) {
			fmt.Fprintln(&rules, line)
		}
	}
	for _, chain := range present {
		if !kept[chain] {
			fmt.Fprintf(&declared, ":%s - [0:0]\n", chain)
			fmt.Fprintf(&deleted, "-X %s\n", chain)
		}
	}
	return fmt.Sprintf("*%s\n%s%s%sCOMMIT\n", table, &declared, &rules, &deleted)
}

// SaveInto writes the controller's chains into the buffer, in the form of iptables-save.
func (o *ownChains) SaveInto(table string, buffer *bytes.Buffer) error {
	saved, err := tool("", "iptables-save", "-t", table)
	if err != nil {
		o.failed()
		return err
	}
	var lines []string
	lines, o.present = ownLines(saved)
	fmt.Fprintf(buffer, "*%s\n", table)
	for _, line := range lines {
		fmt.Fprintln(buffer, line)
	}
	fmt.Fprintln(buffer, "COMMIT")
	return nil
}

// Restore makes the controller's chains what data says, all at once.
func (o *ownChains) Restore(table string, data []byte) error {
	if _, err := tool(replacement(table, o.present, string(data)), "iptables-restore", "--wait", "--noflush"); err != nil {
		o.failed()
		return err
	}
	o.applied()
	return nil
}

func tool(input, name string, args ...string) (string, error) {
	command := exec.Command(name, args...)
	command.Stdin = strings.NewReader(input)
	var words bytes.Buffer
	command.Stderr = &words
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(words.String()))
	}
	return string(output), nil
}

// Has the controller read and write the table through chains. The controller takes no argument for that; go.mod pins the version that has this field.
func useOwnChains(controller *netpol.NetworkPolicyController, chains *ownChains) {
	field := reflect.ValueOf(controller).Elem().FieldByName("iptablesSaveRestore")
	if !field.IsValid() || field.Type() != reflect.TypeFor[map[core.IPFamily]utils.IPTablesSaveRestorer]() {
		panic("another version of the controller")
	}
	*(*map[core.IPFamily]utils.IPTablesSaveRestorer)(field.Addr().UnsafePointer()) = map[core.IPFamily]utils.IPTablesSaveRestorer{
		core.IPv4Protocol: chains,
	}
}
