{{- define "forewarn.name" -}}
{{- if contains "forewarn" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-forewarn{{ end }}
{{- end }}

{{- define "forewarn.scheme" -}}
{{- if .Values.tls.secretName }}https{{ else }}http{{ end }}
{{- end }}

{{- define "forewarn.collector" -}}
{{ include "forewarn.scheme" . }}://{{ include "forewarn.name" . }}-collector:8470
{{- end }}

{{- /* Labels that never change: selectors use them. Argument: (list context part). */}}
{{- define "forewarn.selector" -}}
app.kubernetes.io/name: forewarn
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "forewarn.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "forewarn.name" $root }}-{{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "forewarn.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end }}

{{- /* Argument: (list context target). */}}
{{- define "forewarn.image" -}}
{{- $image := (index . 0).Values.image -}}
image: {{ with $image.registry }}{{ . }}/{{ end }}forewarn-{{ index . 1 }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- define "forewarn.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "forewarn.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Argument: (list context variable key). */}}
{{- define "forewarn.secretVariable" -}}
- name: {{ index . 1 }}
  valueFrom: {secretKeyRef: {name: {{ (index . 0).Values.secretName }}, key: {{ index . 2 }}, optional: {{ index . 3 }}}}
{{- end }}

{{- /* A changed configuration restarts the pods. */}}
{{- define "forewarn.configChecksum" -}}
checksum/config: {{ tpl .Values.config . | sha256sum }}
{{- end }}

{{- define "forewarn.usesSqlite" -}}
{{- if contains "sqlite:" (tpl .Values.config .) }}true{{ end }}
{{- end }}

{{- define "forewarn.claim" -}}
{{- $root := index . 0 -}}
{{- with (index $root.Values.volumes (index . 1)).existingClaim }}{{ . }}{{ else }}{{ include "forewarn.name" $root }}-{{ index . 1 }}{{ end }}
{{- end }}

{{- define "forewarn.volumes" -}}
- name: config
  configMap: {name: {{ include "forewarn.name" . }}-config}
- name: data
  persistentVolumeClaim: {claimName: {{ include "forewarn.claim" (list . "data") }}}
- name: scratch
  emptyDir: {}
{{- with .Values.tls.secretName }}
- name: tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}

{{- define "forewarn.mounts" -}}
- {name: config, mountPath: /etc/forewarn, readOnly: true}
- {name: data, mountPath: /var/lib/forewarn}
- {name: scratch, mountPath: /tmp}
{{- if .Values.tls.secretName }}
- {name: tls, mountPath: /etc/forewarn-tls, readOnly: true}
{{- end }}
{{- end }}
