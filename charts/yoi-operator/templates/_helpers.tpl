{{- define "yoi.labels" -}}
app.kubernetes.io/part-of: yoi
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* An image reference: repository[:tag]. */}}
{{- define "yoi.image" -}}
{{ .repository }}{{ with .tag }}:{{ . }}{{ end }}
{{- end }}

{{/* What Pod Security restricted asks of a container. */}}
{{- define "yoi.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: { drop: [ALL] }
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- /* Those of the values, and a short stay on a node that is lost: its Pods cannot be reached, and others are needed. */ -}}
{{- define "yoi.tolerations" -}}
{{- range tuple "node.kubernetes.io/not-ready" "node.kubernetes.io/unreachable" }}
- { key: {{ . }}, operator: Exists, effect: NoExecute, tolerationSeconds: {{ $.lostNodeSeconds }} }
{{- end }}
{{- with .tolerations }}
{{ toYaml . }}
{{- end }}
{{- end }}
