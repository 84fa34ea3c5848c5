package main

import (
	"strings"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/utils"
)

// How long an answer counts. Then the controller looks again, as often as it would without an event.
const remembering = time.Minute

// Answers from memory what the controller asks in each round about chains and jumps that it has made once and nobody else touches. Without this a round
// starts twenty programs, half a second of a processor on a node with many Pods, and with it four. Rounds follow each other, so nothing is locked.
type remembered struct {
	utils.IPTablesHandler
	// Knows the chains that were there when the round began.
	chains *ownChains
	until  time.Time
	there  map[string]bool
	lists  map[string][]string
}

func key(words ...string) string {
	return strings.Join(words, "\x00")
}

func (r *remembered) forget() {
	r.until = time.Now().Add(remembering)
	r.there, r.lists = map[string]bool{}, map[string][]string{}
}

// Whether something is there, by memory or by asking. Only what is there is remembered.
func (r *remembered) isThere(what string, ask func() (bool, error)) (bool, error) {
	if time.Now().After(r.until) {
		r.forget()
	}
	if r.there[what] {
		return true, nil
	}
	there, err := ask()
	if there && err == nil {
		r.there[what] = true
	}
	return there, err
}

func (r *remembered) Exists(table, chain string, rule ...string) (bool, error) {
	return r.isThere(key(append([]string{"rule", table, chain}, rule...)...), func() (bool, error) {
		return r.IPTablesHandler.Exists(table, chain, rule...)
	})
}

func (r *remembered) ChainExists(table, chain string) (bool, error) {
	return r.isThere(key("chain", table, chain), func() (bool, error) { return r.IPTablesHandler.ChainExists(table, chain) })
}

func (r *remembered) AppendUnique(table, chain string, rule ...string) error {
	_, err := r.isThere(key(append([]string{"unique", table, chain}, rule...)...), func() (bool, error) {
		err := r.IPTablesHandler.AppendUnique(table, chain, rule...)
		return err == nil, err
	})
	return err
}

// The controller asks for the rules of a chain only after it has asked whether its own rule is there.
func (r *remembered) List(table, chain string) ([]string, error) {
	what := key(table, chain)
	if rules, known := r.lists[what]; known {
		return rules, nil
	}
	rules, err := r.IPTablesHandler.List(table, chain)
	if err == nil {
		r.lists[what] = rules
	}
	return rules, err
}

// The controller looks for chains of its own that nothing wants any more.
func (r *remembered) ListChains(string) ([]string, error) {
	return r.chains.present, nil
}

func (r *remembered) Insert(table, chain string, position int, rule ...string) error {
	r.forget()
	return r.IPTablesHandler.Insert(table, chain, position, rule...)
}

func (r *remembered) Append(table, chain string, rule ...string) error {
	r.forget()
	return r.IPTablesHandler.Append(table, chain, rule...)
}

func (r *remembered) Delete(table, chain string, rule ...string) error {
	r.forget()
	return r.IPTablesHandler.Delete(table, chain, rule...)
}

func (r *remembered) NewChain(table, chain string) error {
	r.forget()
	return r.IPTablesHandler.NewChain(table, chain)
}
