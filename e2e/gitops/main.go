// Command gitops-health says of an object on standard input, as JSON, what a script or expressions of GitOps tools find: `STATUS: message`.
//
//	gitops-health lua SCRIPT             as Argo CD: its Lua, with the libraries that it opens
//	gitops-health cel FAILED CURRENT     as Flux: its CEL, in its order (RFC 0009)
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	lua "github.com/yuin/gopher-lua"
)

func main() {
	log.SetFlags(0)
	var object map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&object); err != nil {
		log.Fatal(err)
	}
	var health string
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "lua":
		health, err = byLua(os.Args[2], object)
	case len(os.Args) == 4 && os.Args[1] == "cel":
		health, err = byCel(os.Args[2], os.Args[3], object)
	default:
		log.Fatal("usage: gitops-health lua SCRIPT | cel FAILED CURRENT")
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(health)
}

func byLua(script string, object map[string]any) (string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, library := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		call := lua.P{Fn: state.NewFunction(library), Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return "", err
		}
	}
	state.SetGlobal("obj", value(state, object))
	if err := state.DoString(script); err != nil {
		return "", err
	}
	health, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", fmt.Errorf("the script returns no table but a %s", state.Get(-1).Type())
	}
	return fmt.Sprintf("%s: %s", health.RawGetString("status"), health.RawGetString("message")), nil
}

func value(state *lua.LState, of any) lua.LValue {
	switch of := of.(type) {
	case bool:
		return lua.LBool(of)
	case float64:
		return lua.LNumber(of)
	case string:
		return lua.LString(of)
	case []any:
		table := state.CreateTable(len(of), 0)
		for _, item := range of {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(of))
		for key, item := range of {
			table.RawSetString(key, value(state, item))
		}
		return table
	default:
		return lua.LNil
	}
}

func byCel(failed, current string, object map[string]any) (string, error) {
	options := []cel.EnvOption{
		cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Encoders(),
	}
	environment, err := cel.NewEnv(options...)
	if err != nil {
		return "", err
	}
	if generation(object, "status", "observedGeneration") != generation(object, "metadata", "generation") &&
		generation(object, "status", "observedGeneration") != nil {
		return "InProgress: of an earlier generation", nil
	}
	for _, expression := range []struct{ status, text string }{{"Failed", failed}, {"Current", current}} {
		syntax, issues := environment.Parse(expression.text)
		if issues.Err() != nil {
			return "", issues.Err()
		}
		program, err := environment.Program(syntax)
		if err != nil {
			return "", err
		}
		result, _, err := program.Eval(object)
		if err != nil {
			// A field that is not there: Flux waits.
			return "InProgress: " + err.Error(), nil
		}
		if result.Value() == true {
			return expression.status + ": " + expression.status, nil
		}
	}
	return "InProgress: neither", nil
}

func generation(object map[string]any, part, field string) any {
	fields, _ := object[part].(map[string]any)
	return fields[field]
}
