// Package grant says what a token allows. A token is a JWT (RFC 7519) signed with
// HS256 or EdDSA; its claims:
//
//	tenant   the tenant schema, or a list of them: must be there
//	fork     }
//	stream   } one or a list; absent: every one
//	entity   }
//	exp      when it ends: must be there
//	nbf      when it begins; may be absent
//	sub      who it is; appears in logs
//
// It does no I/O: keys are bytes, the time is an argument. A key is used with its own
// algorithm only, whatever a token's header says; "none" and unknown ones are refused.
// A token is never part of an error.
package grant
