package job

import (
	"reflect"

	"github.com/agentsched/agentsched/internal/fields"
)

// FieldError is a value that cannot be right.
type FieldError = fields.Error

// What a file may write for the types of this package, and how they are
// described there: see internal/fields.

// FieldTag says what a tenant's name is.
func (Tenant) FieldTag() reflect.StructTag {
	return `match:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" is:"a name of a tenant" want:"1 to 64 of a-z A-Z 0-9 and, not first, . - _"`
}

// FieldTag says what the name of a kind of worker is.
func (WorkerKind) FieldTag() reflect.StructTag {
	return `match:"^[a-z0-9][a-z0-9_-]{0,31}$" is:"a name of a worker" want:"1 to 32 of a-z 0-9 and, not first, - _"`
}

// FieldTag says what the name of an agent is.
func (AgentID) FieldTag() reflect.StructTag { return `form:"word"` }

// FieldTag says how a file writes a duration.
func (Duration) FieldTag() reflect.StructTag {
	return `type:"duration" text:"^\\+?(0|(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$" offer:"90s 15m 1h30m"`
}

// FieldTag says how a file writes a size.
func (Size) FieldTag() reflect.StructTag {
	return `type:"size" text:"^[0-9]+( ?(B|KiB|MiB|GiB|TiB))?$" offer:"512MiB 2GiB"`
}

// FieldTag lists the types that a job may have.
func (Type) FieldTag() reflect.StructTag { return fields.Enum(append(Types(), External)...) }

// FieldTag lists every capability.
func (Capability) FieldTag() reflect.StructTag { return fields.Enum(Capabilities()...) }

// FieldTag lists every isolation.
func (Isolation) FieldTag() reflect.StructTag {
	return fields.Enum(Worktree, Direct, Copy, NoWorkspace)
}

// FieldTag lists what a person may be asked about.
func (AskFor) FieldTag() reflect.StructTag { return fields.Enum(AskFors()...) }

// FieldTag lists every answer.
func (AskAnswer) FieldTag() reflect.StructTag { return fields.Enum(AskAnswers()...) }

// FieldTag lists every class.
func (Class) FieldTag() reflect.StructTag { return fields.Enum(Classes()...) }

// FieldTag lists every policy that has a name.
func (DuplicatePolicy) FieldTag() reflect.StructTag { return fields.Enum(DuplicatePolicies()...) }

// FieldTag lists every conflict policy.
func (Conflict) FieldTag() reflect.StructTag { return fields.Enum(FailOnConflict, ResolveConflict) }

// FieldTag lists what may become of a run.
func (OnPartition) FieldTag() reflect.StructTag {
	return fields.Enum(StopOnPartition, FinishOnPartition)
}

// FieldTag lists the modes.
func (OversightMode) FieldTag() reflect.StructTag { return fields.Enum(OversightModes()...) }

// FieldTag lists every strategy.
func (Strategy) FieldTag() reflect.StructTag { return fields.Enum(Strategies()...) }

// FieldTag lists every restart type.
func (RestartType) FieldTag() reflect.StructTag { return fields.Enum(RestartTypes()...) }

// FieldTag lists every class of a failure.
func (ErrorClass) FieldTag() reflect.StructTag { return fields.Enum(ErrorClasses()...) }
